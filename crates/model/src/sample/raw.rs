//! Raw samples, streamed to a file during the run, or collected in memory. The measuring loop only fills blocks; a separate thread
//! writes them to the file. If the disk is too slow, samples are skipped and counted: the loop never waits.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use super::Sample;

/// Samples per hand-over. One hand-over costs about 1 µs, so 0.2 ns per sample.
const BLOCK_SAMPLES: usize = 4096;
/// Blocks queued for the file.
const QUEUED_BLOCKS: usize = 64;

struct SampleBlock {
    case: usize,
    flow: usize,
    samples: Vec<Sample>,
}

/// Destination of the blocks.
#[derive(Debug, Clone)]
enum BlockDestination {
    /// The thread that writes the file.
    File(SyncSender<SampleBlock>),
    /// A list, in blocks of this number of samples.
    Memory(Sender<SampleBlock>, usize),
}

impl BlockDestination {
    fn block_samples(&self) -> usize {
        match self {
            BlockDestination::File(_) => BLOCK_SAMPLES,
            BlockDestination::Memory(_, samples) => *samples,
        }
    }

    /// Whether the block was taken at once.
    fn try_send(&self, block: SampleBlock) -> bool {
        match self {
            BlockDestination::File(sender) => sender.try_send(block).is_ok(),
            BlockDestination::Memory(sender, _) => sender.send(block).is_ok(),
        }
    }

    /// Waits for the file if it has to.
    fn send(&self, block: SampleBlock) {
        let _ = match self {
            BlockDestination::File(sender) => sender.send(block),
            BlockDestination::Memory(sender, _) => sender.send(block),
        };
    }
}

/// The samples of a run in memory.
#[derive(Debug)]
pub struct CollectedSamples(Receiver<SampleBlock>);

impl CollectedSamples {
    /// Samples of the flows that have ended, flow by flow.
    pub fn take(&self) -> Vec<Sample> {
        self.0.try_iter().flat_map(|block| block.samples).collect()
    }
}

/// The receiver of raw samples: a file in CSV with a header, one sample a line, times in ns on the clock of the run; or a
/// list.
#[derive(Debug)]
pub struct RawFile {
    sender: BlockDestination,
    dropped_samples: Arc<AtomicU64>,
    writer: Option<JoinHandle<io::Result<()>>>,
}

impl RawFile {
    /// Creates or truncates the file, and starts the thread that writes it.
    ///
    /// # Errors
    ///
    /// The file cannot be created, or the thread cannot start.
    pub fn create(path: &Path) -> io::Result<RawFile> {
        let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let (sender, blocks) = sync_channel(QUEUED_BLOCKS);
        let writer =
            std::thread::Builder::new().name("raw".to_owned()).spawn(move || write_blocks(file, blocks))?;
        Ok(RawFile {
            sender: BlockDestination::File(sender),
            dropped_samples: Arc::default(),
            writer: Some(writer),
        })
    }

    /// Collects the samples in memory, for runs of which they fit. `room`: about the number of samples of a flow.
    pub fn collect(room: usize) -> (RawFile, CollectedSamples) {
        let (sender, blocks) = channel();
        let sender = BlockDestination::Memory(sender, room.clamp(1, BLOCK_SAMPLES));
        (RawFile { sender, dropped_samples: Arc::default(), writer: None }, CollectedSamples(blocks))
    }

    /// The sink for one flow of one case.
    pub fn sink(&self, case: usize, flow: usize) -> RawSink {
        RawSink {
            case,
            flow,
            samples: Vec::with_capacity(self.sender.block_samples()),
            sender: self.sender.clone(),
            dropped_samples: self.dropped_samples.clone(),
        }
    }

    /// Waits until everything is written. Returns the number of skipped samples.
    ///
    /// # Errors
    ///
    /// A write failed.
    pub fn finish(self) -> io::Result<u64> {
        drop(self.sender);
        if let Some(writer) = self.writer {
            writer.join().map_err(|_| io::Error::other("the writing thread failed"))??;
        }
        Ok(self.dropped_samples.load(Relaxed))
    }
}

fn write_blocks(mut file: BufWriter<File>, blocks: Receiver<SampleBlock>) -> io::Result<()> {
    writeln!(file, "case,flow,sequence,intended_ns,sent_ns,received_ns")?;
    for SampleBlock { case, flow, samples } in blocks {
        for s in &samples {
            let (intended, sent, received) = (s.intended.0, s.sent.0, s.received.0);
            writeln!(file, "{case},{flow},{},{intended},{sent},{received}", s.sequence)?;
        }
    }
    file.flush()
}

/// The measuring loop's handle of a [`RawFile`].
#[derive(Debug)]
pub struct RawSink {
    case: usize,
    flow: usize,
    samples: Vec<Sample>,
    sender: BlockDestination,
    dropped_samples: Arc<AtomicU64>,
}

impl RawSink {
    /// Adds a sample. A full block is sent to the writer; if the writer is behind, the samples of the block are dropped
    /// and counted.
    #[inline]
    pub fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
        if self.samples.len() >= self.sender.block_samples() {
            self.send_block();
        }
    }

    fn send_block(&mut self) {
        let block = SampleBlock {
            case: self.case,
            flow: self.flow,
            samples: std::mem::replace(&mut self.samples, Vec::with_capacity(self.sender.block_samples())),
        };
        let count = block.samples.len() as u64;
        if !self.sender.try_send(block) {
            self.dropped_samples.fetch_add(count, Relaxed);
        }
    }
}

impl Drop for RawSink {
    fn drop(&mut self) {
        if self.samples.is_empty() {
            return;
        }
        // The run is over, so waiting for the disk is acceptable.
        let samples = std::mem::take(&mut self.samples);
        self.sender.send(SampleBlock { case: self.case, flow: self.flow, samples });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;

    #[test]
    fn every_sample_is_collected() {
        let (raw, collected) = RawFile::collect(100);
        let mut sink = raw.sink(0, 0);
        let sample = |sequence| Sample { sequence, intended: Time(1), sent: Time(2), received: Time(3) };
        (0..5000).for_each(|sequence| sink.push(sample(sequence)));
        drop(sink);
        assert_eq!(raw.finish().unwrap(), 0);
        let sequences: Vec<u64> = collected.take().iter().map(|sample| sample.sequence).collect();
        assert_eq!(sequences, Vec::from_iter(0..5000));
    }

    #[test]
    fn every_sample_reaches_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("raw.csv");
        let raw = RawFile::create(&path).unwrap();
        let mut sink = raw.sink(0, 1);
        for sequence in 0..10_000 {
            sink.push(Sample { sequence, intended: Time(1), sent: Time(2), received: Time(sequence + 3) });
        }
        drop(sink);
        assert_eq!(raw.finish().unwrap(), 0);
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().count(), 10_001);
        assert_eq!(text.lines().nth(10_000), Some("0,1,9999,1,2,10002"));
    }
}
