//! The histograms of the round trips as an interval log of HdrHistogram, for its plotters and for `import hdr`: one line per case, tagged with
//! its number and endpoint, in nanoseconds. The second column is the length of the case; the third, the slowest round trip, is in ms.

use std::io;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::ReportOptions;
use super::wording::printable;
use linkgauge_model::run::Run;
use linkgauge_model::sample::decode_figures_histogram;

/// Nanoseconds in the unit of the third column.
const MAX_DIVISOR: f64 = 1e6;

pub(crate) fn write(run: &Run, _: &ReportOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let (mut text, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment(&printable(&format!("{}, times in ns", run.tool)));
    builder.with_start_time(SystemTime::from(run.started)).with_max_value_divisor(MAX_DIVISOR);
    let mut log = builder.begin_log_with(&mut text, &mut serializer)?;
    for (case, number) in run.cases.iter().zip(1..) {
        let Some(histogram) = decode_figures_histogram(&case.figures) else { continue };
        // A tag ends with a comma or a space.
        let name = printable(&case.endpoint).replace([',', ' '], "_");
        let name = format!("{number}:{name}");
        let length = Duration::from_nanos(case.elapsed_ns);
        log.write_histogram(&histogram, Duration::ZERO, length, Tag::new(&name))
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
    }
    // A log without cases ends with a comment that has no line end.
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    out.write_all(&text)
}
