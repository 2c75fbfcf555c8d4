//! What a download asks for and makes of the answers: the lists it needs first, then the file or table. Not for how
//! anything is asked (`talk.rs`), nor for links (`party.rs`).

use std::collections::VecDeque;
use std::time::Duration;

use super::collection::Collection;
use super::pieces::Pieces;
use super::rows::Format;
use super::talk::{Heard, Talk};
use super::{DENIED, Options, What};
use crate::clock::Time;
use crate::peer::pakbus::message::{Code, Command, Fetch};
use crate::peer::pakbus::packet::LinkState;
use crate::peer::pakbus::reply::{Program, Reply};
use crate::peer::pakbus::{directory, table};
use crate::plan::{Case, Stop};
use crate::sample::{Recorder, Records, Sample};
use crate::workload::download::{Checker, Place};

/// Longest list of files or tables that is read: far more than loggers hold.
const LONGEST_LIST: usize = 1 << 20;

/// Lists are read in pieces as large as any.
const LIST_PIECE: u16 = 991;

const DIRECTORY: &str = ".DIR";
const DEFINITIONS: &str = ".TDF";

/// Answers in a row without a record that is new.
const MOST_STALE: u32 = 3;

/// Longest piece of text that is handed over. So many of them are on their way to a disk that only their number is bounded
/// there.
const LONGEST_PIECE: usize = 4096;

/// The setting that holds the name of the station.
const STATION: u16 = 2;

/// What is being done.
enum Stage {
    /// What runs on the logger.
    Program,
    /// The directory, for the size of a file; the definitions of the tables, for the records of one.
    List {
        name: &'static str,
        pieces: Pieces,
        bytes: Vec<u8>,
    },
    /// The name of the station, for the head of a table.
    Station(Box<Collection>),
    File(Pieces),
    Table(Box<Collection>),
    Over,
}

/// A download as far as it has come.
pub struct Job {
    options: Options,
    chunk: u16,
    stop: Stop,
    stage: Stage,
    /// Of all pieces of the file that is being read.
    transaction: u8,
    program: Option<Program>,
    checker: Checker,
    stale: u32,
    /// Pieces that were asked for.
    asked: u64,
    /// All of it came, and not only what the plan wanted.
    whole: bool,
    /// What came and is not handed over yet, in order; nothing where nobody wants it.
    pub content: VecDeque<Vec<u8>>,
    keeps: bool,
}

impl Job {
    /// `keeps`: the content is wanted.
    pub fn new(options: Options, case: &Case, keeps: bool, transaction: u8) -> Job {
        Job {
            chunk: u16::try_from(case.message_bytes).unwrap_or(u16::MAX),
            stop: case.stop,
            options,
            stage: Stage::Program,
            transaction,
            program: None,
            checker: Checker::default(),
            stale: 0,
            asked: 0,
            whole: false,
            content: VecDeque::new(),
            keeps,
        }
    }

    /// Whether what is asked now is the download itself.
    pub fn is_measured(&self) -> bool {
        matches!(self.stage, Stage::File(_) | Stage::Table(_))
    }

    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Whether the file or table came to its end, and not only to that of the plan.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The number under which the logger opened the file is no more.
    pub fn reopened(&mut self, transaction: u8) {
        self.transaction = transaction;
    }

    /// What the logger told of its program.
    pub fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }

    pub fn records(&self) -> Option<Records> {
        matches!(self.options.what, What::Table { .. }).then(|| self.checker.records())
    }

    /// How far it has come, for people.
    pub fn place(&self) -> String {
        let name = self.options.what.name();
        match &self.stage {
            Stage::File(pieces) => format!("at byte {} of {name}", pieces.done()),
            Stage::Table(_) => format!("after {} records of {name}", self.checker.records().received),
            Stage::Over => format!("at the end of {name}"),
            _ => format!("before {name} was begun"),
        }
    }

    /// Whether the plan lets another piece be asked for.
    fn goes_on(&self, recorder: &Recorder, now: Time) -> bool {
        let elapsed = recorder.first.map_or(Duration::ZERO, |first| now.since(first));
        // The volume of a file is its end, to the byte.
        let bytes = if matches!(self.stage, Stage::File(_)) { 0 } else { recorder.counts.bytes };
        !self.stop.reached(self.asked, elapsed, bytes)
    }

    /// Asks for as much as may be on its way.
    pub fn ask(&mut self, talk: &mut Talk, recorder: &Recorder, now: Time) {
        while talk.has_room() {
            if self.is_measured() && !(self.content.is_empty() && self.goes_on(recorder, now)) {
                return;
            }
            let security = self.options.security;
            let fetch = |name: &str, (offset, swath)| {
                let fetch = Fetch { security, name: name.to_owned(), close: false, offset, swath };
                (u64::from(offset), Command::Fetch(fetch))
            };
            // Lists and heads come one answer after the other: nobody waits for them.
            let idle = talk.is_idle();
            let asked = match &mut self.stage {
                Stage::List { name, pieces, .. } if idle => pieces.ask().map(|piece| fetch(name, piece)),
                Stage::Program if idle => Some((0, Command::Program { security })),
                Stage::Station(_) if idle => {
                    Some((0, Command::Settings { security, range: Some((STATION, STATION)) }))
                }
                Stage::File(pieces) => pieces.ask().map(|piece| fetch(self.options.what.name(), piece)),
                Stage::Table(collection) => collection.ask().map(|(part, selection)| {
                    let (mode, selections) = (selection.span.mode(), vec![selection]);
                    (part, Command::Collect { security, mode, selections })
                }),
                _ => None,
            };
            let Some((key, command)) = asked else { return };
            self.asked += u64::from(self.is_measured());
            let of_file = matches!(command, Command::Fetch(_));
            let transaction = if of_file { self.transaction } else { talk.transaction() };
            talk.ask(key, transaction, command);
        }
    }

    /// Ends a download that has all, or all that was wanted.
    pub fn end(&mut self, talk: &mut Talk, recorder: &Recorder, now: Time) {
        let stopped = talk.is_idle() && !self.goes_on(recorder, now);
        match &self.stage {
            Stage::File(pieces) if pieces.is_done() || stopped => {
                self.whole = pieces.is_whole();
                // It is closed by being read beyond its end; else it has to be said.
                let (security, name) = (self.options.security, self.options.what.name().to_owned());
                let offset = u32::try_from(pieces.done()).unwrap_or(u32::MAX);
                let close = Command::Fetch(Fetch { security, name, close: true, offset, swath: 0 });
                if !self.stop.is_none() {
                    talk.say(LinkState::READY, self.transaction, &close);
                }
            }
            Stage::Table(collection) if collection.is_done() || stopped => {
                self.whole = collection.is_done();
            }
            _ => return,
        }
        talk.keep(|_| false);
        talk.say(LinkState::FINISHED, 0, &Command::Bye);
        self.stage = Stage::Over;
    }

    /// Makes use of an answer; `true` if it brought more of the download. The error is what the logger refuses, or what
    /// no logger may say.
    pub fn answered(
        &mut self,
        heard: Heard,
        talk: &mut Talk,
        recorder: &mut Recorder,
        now: Time,
    ) -> Result<bool, String> {
        let reply = match heard.outcome {
            Ok(reply) => reply,
            Err(why) => {
                match &self.stage {
                    // What would be good to know; there is a download all the same.
                    Stage::Program => self.begin_list(),
                    Stage::Station(_) => self.begin_table(""),
                    Stage::List { name: DIRECTORY, .. } => self.begin_file(None, talk),
                    _ => return Err(format!("the logger says {}: {why}", self.place())),
                }
                return Ok(false);
            }
        };
        let mut measured = |bytes: usize| {
            let sequence = recorder.counts.received;
            recorder.answered(
                Sample { sequence, intended: heard.sent, sent: heard.sent, received: now },
                bytes as u64,
            );
        };
        match (reply, heard.command) {
            (Reply::Fetch { code: Code::COMPLETE, data, .. }, Command::Fetch(fetch)) => {
                let Stage::File(pieces) = &mut self.stage else {
                    return self.listed(&fetch, data, talk, recorder);
                };
                measured(data.len());
                let further = !data.is_empty();
                pieces.came(fetch.offset, fetch.swath, data);
                while let Some(data) = pieces.take() {
                    if self.keeps {
                        self.content.push_back(data);
                    }
                }
                talk.keep(|offset| pieces.wants(offset));
                Ok(further)
            }
            (Reply::Fetch { code: Code::DENIED, .. } | Reply::Collect(Err(Code::DENIED)), _) => {
                Err(DENIED.to_owned())
            }
            (Reply::Fetch { code, .. }, Command::Fetch(fetch)) => match &self.stage {
                Stage::List { name: DIRECTORY, .. } => {
                    self.begin_file(None, talk);
                    Ok(false)
                }
                _ => Err(format!("{}: the logger says: {code}", fetch.name)),
            },
            (Reply::Collect(Ok(body)), _) => {
                let Stage::Table(collection) = &mut self.stage else { return Ok(false) };
                measured(body.len());
                collection.came(heard.key, &body)?;
                talk.keep(|part| collection.wants(part));
                self.take_records()
            }
            (Reply::Collect(Err(Code::OTHER_DEFINITION)), _) => Err(format!(
                "the definition of table {} has changed: download it anew",
                self.options.what.name()
            )),
            (Reply::Collect(Err(code)), _) => {
                Err(format!("{}: the logger says: {code}", self.options.what.name()))
            }
            (Reply::Settings(settings), _) => {
                let setting = settings.ok().and_then(|settings| settings.settings.into_iter().next());
                let value = setting.map(|setting| setting.value).unwrap_or_default();
                let name = value.split(|&byte| byte == 0).next().unwrap_or_default();
                let name: String = name.iter().map(|&byte| char::from(byte)).collect();
                self.begin_table(&name);
                Ok(false)
            }
            (Reply::Program(program), _) => {
                self.program = program.ok();
                self.begin_list();
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    fn begin_list(&mut self) {
        let name = if matches!(self.options.what, What::File(_)) { DIRECTORY } else { DEFINITIONS };
        self.stage = Stage::List { name, pieces: Pieces::new(LIST_PIECE, None, None), bytes: Vec::new() };
    }

    /// A piece of a list.
    fn listed(
        &mut self,
        fetch: &Fetch,
        data: Vec<u8>,
        talk: &mut Talk,
        recorder: &Recorder,
    ) -> Result<bool, String> {
        let Stage::List { name, pieces, bytes } = &mut self.stage else { return Ok(false) };
        pieces.came(fetch.offset, fetch.swath, data);
        while let Some(data) = pieces.take() {
            bytes.extend(data);
        }
        if bytes.len() > LONGEST_LIST {
            return Err(format!("{name} of the logger does not end"));
        }
        if !pieces.is_done() {
            return Ok(false);
        }
        match &self.options.what {
            What::File(file) => {
                let entries = directory::read(bytes).unwrap_or_default();
                let size =
                    entries.into_iter().find(|entry| entry.name == *file).map(|entry| entry.size.into());
                self.begin_file(size, talk);
                if let Stage::File(pieces) = &self.stage {
                    pieces.planned().into_iter().for_each(|bytes| recorder.plan(bytes));
                }
            }
            What::Table { name, format } => {
                let tables = table::read(bytes)
                    .map_err(|error| format!("the list of tables cannot be read: {error}"))?;
                let collection = Box::new(Collection::new(tables, name, self.options.window > 1)?);
                let named = *format == Format::Toa5;
                self.stage = Stage::Station(collection);
                if !named {
                    self.begin_table("");
                }
            }
        }
        Ok(false)
    }

    fn begin_file(&mut self, size: Option<u64>, talk: &mut Talk) {
        self.transaction = talk.transaction();
        self.stage = Stage::File(Pieces::new(self.chunk, size, self.stop.volume_bytes));
    }

    fn begin_table(&mut self, station: &str) {
        if let Stage::Station(collection) = std::mem::replace(&mut self.stage, Stage::Over) {
            let head = self.format().head(collection.table(), station, self.program.as_ref());
            self.write(head);
            self.stage = Stage::Table(collection);
        }
    }

    fn format(&self) -> Format {
        match self.options.what {
            What::Table { format, .. } => format,
            What::File(_) => Format::default(),
        }
    }

    fn write(&mut self, text: String) {
        if self.keeps {
            self.content.extend(text.as_bytes().chunks(LONGEST_PIECE).map(<[u8]>::to_vec));
        }
    }

    /// Checks the records that have their turn, and writes those that are new.
    fn take_records(&mut self) -> Result<bool, String> {
        let format = self.format();
        let Stage::Table(collection) = &mut self.stage else { return Ok(false) };
        let (mut text, mut further) = (String::new(), false);
        while let Some(records) = collection.take() {
            let mut new = 0;
            for record in &records {
                if self.checker.take(record.number) != Place::Repeated {
                    new += 1;
                    text += &format.row(collection.table(), record);
                }
            }
            further |= new > 0;
            self.stale = if new > 0 || records.is_empty() { 0 } else { self.stale + 1 };
        }
        if self.stale > MOST_STALE {
            return Err("the logger sends the same records again and again: was the table reset?".to_owned());
        }
        self.write(text);
        Ok(further)
    }
}
