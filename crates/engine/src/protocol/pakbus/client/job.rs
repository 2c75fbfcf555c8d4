//! The steps of a download and the handling of replies: first the lists it needs, then the file or table. Requests are
//! sent by `conversation.rs`, links are handled by `downloader.rs`.

use std::collections::VecDeque;
use std::time::Duration;

use super::chunks::FileChunks;
use super::collection::TableCollection;
use super::conversation::{CommandOutcome, Conversation};
use super::rows::TableFormat;
use super::{DownloadTarget, PERMISSION_DENIED, PakBusOptions};
use crate::link::Fault;
use crate::protocol::pakbus::message::{FetchRequest, LoggerCommand, ReplyCode};
use crate::protocol::pakbus::packet::LinkState;
use crate::protocol::pakbus::reply::{FailureCode, LoggerProgram, LoggerReply};
use crate::protocol::pakbus::{directory, table};
use crate::workload::Load;
use crate::workload::download::{PartialContent, RecordChecker, RecordStatus};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::StopCondition;
use linkgauge_model::run::RecordCounts;
use linkgauge_model::sample::{Recorder, Sample};
use linkgauge_model::units::format_plural;

/// Longest accepted list of files or tables: far more than loggers have.
const MAX_LIST_BYTES: usize = 1 << 20;

/// Size of the chunks in which lists are read: the maximum.
const LIST_CHUNK_BYTES: u16 = 991;

const DIRECTORY_FILE: &str = ".DIR";
const DEFINITIONS_FILE: &str = ".TDF";

/// Maximum consecutive replies without a new record.
const MAX_STALE_REPLIES: u32 = 3;

/// Maximum bytes of a delivered chunk of text. The content queue limits only the number of chunks.
const MAX_TEXT_CHUNK_BYTES: usize = 4096;

/// Number of the setting with the station name.
const STATION_NAME_SETTING: u16 = 2;

/// Step of a download.
enum DownloadStage {
    /// Reads the program of the logger.
    Program,
    /// Reads the directory, for the size of a file, or the table definitions, for the records of a table.
    List {
        name: &'static str,
        chunks: FileChunks,
        bytes: Vec<u8>,
    },
    /// Reads the station name, for the header of a table.
    StationName(Box<TableCollection>),
    File(FileChunks),
    Table(Box<TableCollection>),
    Finished,
}

/// State of a download.
pub(crate) struct DownloadJob {
    options: PakBusOptions,
    chunk_bytes: u16,
    stop: StopCondition,
    stage: DownloadStage,
    /// Transaction number of all chunks of the current file.
    transaction: u8,
    program: Option<LoggerProgram>,
    record_checker: RecordChecker,
    stale_replies: u32,
    /// Number of requested chunks.
    requested_chunks: u64,
    /// Whether the whole file or table arrived, not only the part in the plan.
    is_complete: bool,
    /// Received content to deliver, in order; empty if it is not saved.
    pub(crate) content: VecDeque<Vec<u8>>,
    keeps_content: bool,
    /// Part of the file that an earlier download has left.
    partial: Option<PartialContent>,
    /// Rest of the last bytes of that part, with which the file has to begin.
    uncompared: Vec<u8>,
}

impl DownloadJob {
    /// State before the first request. `keeps`: whether the content is saved.
    pub fn new(options: PakBusOptions, load: &Load, keeps: bool, transaction: u8) -> DownloadJob {
        DownloadJob {
            chunk_bytes: u16::try_from(load.message_bytes).unwrap_or(u16::MAX),
            stop: load.stop,
            options,
            stage: DownloadStage::Program,
            transaction,
            program: None,
            record_checker: RecordChecker::default(),
            stale_replies: 0,
            requested_chunks: 0,
            is_complete: false,
            content: VecDeque::new(),
            keeps_content: keeps,
            partial: None,
            uncompared: Vec::new(),
        }
    }

    /// Continues after what an earlier download has left of the file. A table begins from its start.
    pub(crate) fn resume(&mut self, partial: Option<PartialContent>) {
        self.partial = partial.filter(|_| matches!(self.options.target, DownloadTarget::File(_)));
        self.uncompared = self.partial.as_ref().map_or_else(Vec::new, |partial| partial.tail.clone());
    }

    /// Bytes of an earlier download that were continued, once their end was compared.
    pub(crate) fn resumed_bytes(&self) -> Option<u64> {
        self.partial.as_ref().filter(|_| self.uncompared.is_empty()).map(|partial| partial.bytes)
    }

    /// Fault of a file that does not continue what an earlier download has left.
    fn other_file(&self) -> Fault {
        Fault::UnexpectedData(format!(
            "{} is not the file of which {} were downloaded before: it has changed. Rename or remove the partial file, or \
             use another one (--output)",
            self.options.target.name(),
            format_plural(self.partial.as_ref().map_or(0, |partial| partial.bytes), "byte")
        ))
    }

    /// Whether the current requests are the download itself.
    pub(crate) fn is_measured(&self) -> bool {
        matches!(self.stage, DownloadStage::File(_) | DownloadStage::Table(_))
    }

    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.stage, DownloadStage::Finished)
    }

    /// Whether the file or table was read to its own end, not only to the end of the plan.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Replaces the transaction number under which the logger opened the file.
    pub(crate) fn set_transaction(&mut self, transaction: u8) {
        self.transaction = transaction;
    }

    /// Program that the logger reported.
    pub(crate) fn program(&self) -> Option<&LoggerProgram> {
        self.program.as_ref()
    }

    pub(crate) fn records(&self) -> Option<RecordCounts> {
        matches!(self.options.target, DownloadTarget::Table { .. }).then(|| self.record_checker.records())
    }

    /// Progress for display.
    pub(crate) fn progress_text(&self) -> String {
        let name = self.options.target.name();
        match &self.stage {
            DownloadStage::File(chunks) => format!("at byte {} of {name}", chunks.delivered_bytes()),
            DownloadStage::Table(_) => {
                format!("after {} records of {name}", self.record_checker.records().received)
            }
            DownloadStage::Finished => format!("at the end of {name}"),
            _ => format!("before {name} was begun"),
        }
    }

    /// Whether the plan allows a further chunk.
    fn may_request_more(&self, recorder: &Recorder, now: Time) -> bool {
        let elapsed = recorder.first_instant.map_or(Duration::ZERO, |first| now.since(first));
        // The volume limits a file to the exact byte.
        let bytes =
            if matches!(self.stage, DownloadStage::File(_)) { 0 } else { recorder.counts.delivered_bytes };
        !self.stop.is_reached(self.requested_chunks, elapsed, bytes)
    }

    /// Queues requests until the window is full.
    pub(crate) fn send_requests(&mut self, conversation: &mut Conversation, recorder: &Recorder, now: Time) {
        while conversation.has_room() {
            if self.is_measured() && !(self.content.is_empty() && self.may_request_more(recorder, now)) {
                return;
            }
            let security = self.options.security;
            let fetch = |name: &str, (offset, swath)| {
                let fetch = FetchRequest { security, name: name.to_owned(), is_last: false, offset, swath };
                (u64::from(offset), LoggerCommand::Fetch(fetch))
            };
            // Lists and headers are read one reply at a time; they are not part of the measurement.
            let idle = conversation.is_idle();
            let request = match &mut self.stage {
                DownloadStage::List { name, chunks, .. } if idle => {
                    chunks.next_request().map(|range| fetch(name, range))
                }
                DownloadStage::Program if idle => Some((0, LoggerCommand::Program { security })),
                DownloadStage::StationName(_) if idle => Some((
                    0,
                    LoggerCommand::Settings {
                        security,
                        range: Some((STATION_NAME_SETTING, STATION_NAME_SETTING)),
                    },
                )),
                DownloadStage::File(chunks) => {
                    chunks.next_request().map(|range| fetch(self.options.target.name(), range))
                }
                DownloadStage::Table(collection) => collection.next_request().map(|(part, selection)| {
                    let (mode, selections) = (selection.span.mode(), vec![selection]);
                    (part, LoggerCommand::Collect { security, mode, selections })
                }),
                _ => None,
            };
            let Some((key, command)) = request else { return };
            self.requested_chunks += u64::from(self.is_measured());
            let of_file = matches!(command, LoggerCommand::Fetch(_));
            let transaction = if of_file { self.transaction } else { conversation.allocate_transaction() };
            conversation.queue_command(key, transaction, command);
        }
    }

    /// Ends a download that has the whole file or table, or all that the plan wants.
    ///
    /// # Errors
    ///
    /// The file ended before the end of what an earlier download has left.
    pub(crate) fn finish_if_done(
        &mut self,
        conversation: &mut Conversation,
        recorder: &Recorder,
        now: Time,
    ) -> Result<(), Fault> {
        let stopped = conversation.is_idle() && !self.may_request_more(recorder, now);
        match &self.stage {
            DownloadStage::File(chunks) if chunks.is_done() && !self.uncompared.is_empty() => {
                return Err(self.other_file());
            }
            DownloadStage::File(chunks) if chunks.is_done() || stopped => {
                self.is_complete = chunks.is_complete();
                // A read after the end closes the file; otherwise the client must close it.
                let (security, name) = (self.options.security, self.options.target.name().to_owned());
                let offset = u32::try_from(chunks.delivered_bytes()).unwrap_or(u32::MAX);
                let close =
                    LoggerCommand::Fetch(FetchRequest { security, name, is_last: true, offset, swath: 0 });
                if !self.stop.is_unlimited() {
                    conversation.queue_message(LinkState::READY, self.transaction, &close);
                }
            }
            DownloadStage::Table(collection) if collection.is_done() || stopped => {
                self.is_complete = collection.is_done();
            }
            _ => return Ok(()),
        }
        conversation.retain_commands(|_| false);
        conversation.queue_message(LinkState::FINISHED, 0, &LoggerCommand::Bye);
        self.stage = DownloadStage::Finished;
        Ok(())
    }

    /// Handles a reply; returns `true` if it continued the download. The error is a refusal or a protocol violation.
    pub(crate) fn handle_reply(
        &mut self,
        result: CommandOutcome,
        conversation: &mut Conversation,
        recorder: &mut Recorder,
        now: Time,
    ) -> Result<bool, Fault> {
        let reply = match result.outcome {
            Ok(reply) => reply,
            Err(why) => return self.continue_without(why, conversation),
        };
        let mut measured = |bytes: usize| {
            let sequence = recorder.counts.received;
            recorder.record_reply(
                Sample { sequence, intended: result.first_sent, sent: result.first_sent, received: now },
                bytes as u64,
            );
        };
        match (reply, result.command) {
            (LoggerReply::Fetch { code: ReplyCode::COMPLETE, data, .. }, LoggerCommand::Fetch(fetch)) => {
                if !matches!(self.stage, DownloadStage::File(_)) {
                    return self.add_list_chunk(&fetch, data, conversation, recorder);
                }
                measured(data.len());
                self.add_file_chunk(&fetch, data, conversation)
            }
            (
                LoggerReply::Fetch { code: ReplyCode::DENIED, .. }
                | LoggerReply::Collect(Err(ReplyCode::DENIED)),
                _,
            ) => Err(Fault::Refused(PERMISSION_DENIED.to_owned())),
            (LoggerReply::Fetch { code, .. }, LoggerCommand::Fetch(fetch)) => match &self.stage {
                DownloadStage::List { name: DIRECTORY_FILE, .. } => {
                    self.begin_file(None, conversation);
                    Ok(false)
                }
                _ => Err(Fault::Refused(format!("{}: the logger reports: {code}", fetch.name))),
            },
            (LoggerReply::Collect(Ok(body)), _) => {
                let DownloadStage::Table(collection) = &mut self.stage else { return Ok(false) };
                measured(body.len());
                collection.add_reply(result.key, &body)?;
                conversation.retain_commands(|part| collection.is_needed(part));
                self.write_records()
            }
            (LoggerReply::Collect(Err(code)), _) => Err(Fault::Refused(self.refusal_text(code))),
            (LoggerReply::Settings(settings), _) => {
                let setting = settings.ok().and_then(|settings| settings.settings.into_iter().next());
                self.begin_table(&text_of_setting(&setting.map(|setting| setting.value).unwrap_or_default()));
                Ok(false)
            }
            (LoggerReply::Program(program), _) => {
                self.program = program.ok();
                self.begin_list();
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// Reason of the logger for not sending a table, as text.
    fn refusal_text(&self, code: ReplyCode) -> String {
        let name = self.options.target.name();
        match code {
            ReplyCode::OTHER_DEFINITION => {
                format!("the definition of table {name} has changed: download it again")
            }
            code => format!("{name}: the logger reports: {code}"),
        }
    }

    /// Continues after a failed request, if its information is optional.
    fn continue_without(&mut self, why: FailureCode, conversation: &mut Conversation) -> Result<bool, Fault> {
        match &self.stage {
            DownloadStage::Program => self.begin_list(),
            DownloadStage::StationName(_) => self.begin_table(""),
            DownloadStage::List { name: DIRECTORY_FILE, .. } => self.begin_file(None, conversation),
            _ => {
                let progress = self.progress_text();
                return Err(Fault::Refused(format!("the logger reports {progress}: {why}")));
            }
        }
        Ok(false)
    }

    /// Adds a chunk of the file; returns `true` if it was not empty.
    fn add_file_chunk(
        &mut self,
        fetch: &FetchRequest,
        data: Vec<u8>,
        conversation: &mut Conversation,
    ) -> Result<bool, Fault> {
        let DownloadStage::File(chunks) = &mut self.stage else { return Ok(false) };
        let further = !data.is_empty();
        chunks.add_chunk(fetch.offset, fetch.swath, data);
        while let Some(mut data) = chunks.take_chunk() {
            let compared = data.len().min(self.uncompared.len());
            if data[..compared] != self.uncompared[..compared] {
                return Err(self.other_file());
            }
            self.uncompared.drain(..compared);
            data.drain(..compared);
            if self.keeps_content && !data.is_empty() {
                self.content.push_back(data);
            }
        }
        conversation.retain_commands(|offset| chunks.is_needed(offset));
        Ok(further)
    }

    fn begin_list(&mut self) {
        let name = if matches!(self.options.target, DownloadTarget::File(_)) {
            DIRECTORY_FILE
        } else {
            DEFINITIONS_FILE
        };
        self.stage = DownloadStage::List {
            name,
            chunks: FileChunks::new(LIST_CHUNK_BYTES, None, None),
            bytes: Vec::new(),
        };
    }

    /// Adds a chunk of a list.
    fn add_list_chunk(
        &mut self,
        fetch: &FetchRequest,
        data: Vec<u8>,
        conversation: &mut Conversation,
        recorder: &Recorder,
    ) -> Result<bool, Fault> {
        let DownloadStage::List { name, chunks, bytes } = &mut self.stage else { return Ok(false) };
        chunks.add_chunk(fetch.offset, fetch.swath, data);
        while let Some(data) = chunks.take_chunk() {
            bytes.extend(data);
        }
        if bytes.len() > MAX_LIST_BYTES {
            return Err(Fault::UnexpectedData(format!("{name} of the logger does not end")));
        }
        if !chunks.is_done() {
            return Ok(false);
        }
        match &self.options.target {
            DownloadTarget::File(file) => {
                let entries = directory::read(bytes).unwrap_or_default();
                let size =
                    entries.into_iter().find(|entry| entry.name == *file).map(|entry| entry.size.into());
                self.begin_file(size, conversation);
                if let DownloadStage::File(chunks) = &self.stage {
                    chunks.planned_bytes().into_iter().for_each(|bytes| recorder.set_planned_bytes(bytes));
                }
            }
            DownloadTarget::Table { name, format } => {
                let tables = table::read(bytes).map_err(|error| {
                    Fault::UnexpectedData(format!("the list of tables cannot be read: {error}"))
                })?;
                let collection = Box::new(TableCollection::new(tables, name, self.options.window > 1)?);
                let named = *format == TableFormat::Toa5;
                self.stage = DownloadStage::StationName(collection);
                if !named {
                    self.begin_table("");
                }
            }
        }
        Ok(false)
    }

    fn begin_file(&mut self, size: Option<u64>, conversation: &mut Conversation) {
        self.transaction = conversation.allocate_transaction();
        let (begin, kept) =
            self.partial.as_ref().map_or((0, 0), |partial| (partial.compared_from(), partial.bytes));
        let end = self.stop.volume_bytes.map(|volume| volume.saturating_add(kept));
        self.stage = DownloadStage::File(FileChunks::new(self.chunk_bytes, size, end).starting_at(begin));
    }

    fn begin_table(&mut self, station: &str) {
        if let DownloadStage::StationName(collection) =
            std::mem::replace(&mut self.stage, DownloadStage::Finished)
        {
            let head = self.format().format_header(collection.table(), station, self.program.as_ref());
            self.queue_text(head);
            self.stage = DownloadStage::Table(collection);
        }
    }

    fn format(&self) -> TableFormat {
        match self.options.target {
            DownloadTarget::Table { format, .. } => format,
            DownloadTarget::File(_) => TableFormat::default(),
        }
    }

    fn queue_text(&mut self, text: String) {
        if self.keeps_content {
            self.content.extend(text.as_bytes().chunks(MAX_TEXT_CHUNK_BYTES).map(<[u8]>::to_vec));
        }
    }

    /// Checks the records that are next in order, and writes the new ones.
    fn write_records(&mut self) -> Result<bool, Fault> {
        let format = self.format();
        let DownloadStage::Table(collection) = &mut self.stage else { return Ok(false) };
        let (mut text, mut further) = (String::new(), false);
        while let Some(records) = collection.take_records() {
            let mut new = 0;
            for record in &records {
                if self.record_checker.check(record.number) != RecordStatus::Duplicate {
                    new += 1;
                    text += &format.format_row(collection.table(), record);
                }
            }
            further |= new > 0;
            self.stale_replies = if new > 0 || records.is_empty() { 0 } else { self.stale_replies + 1 };
        }
        if self.stale_replies > MAX_STALE_REPLIES {
            return Err(Fault::UnexpectedData(
                "the logger sends the same records again and again: the table may have been reset. Download it again"
                    .to_owned(),
            ));
        }
        self.queue_text(text);
        Ok(further)
    }
}

/// Text of a setting, up to the first zero.
fn text_of_setting(value: &[u8]) -> String {
    let text = value.split(|&byte| byte == 0).next().unwrap_or_default();
    text.iter().map(|&byte| char::from(byte)).collect()
}
