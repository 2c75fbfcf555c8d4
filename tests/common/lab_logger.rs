//! A logger of the lab as a process, and a client of our own that asks it one command at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use linkgauge::protocol::pakbus::frame::{self, FrameDecoder};
use linkgauge::protocol::pakbus::message::{
    FetchRequest, LoggerCommand as Ask, RecordRange, RecordSelection, ReplyCode,
};
use linkgauge::protocol::pakbus::packet::{Hop, LinkState, PacketRoute, PakBusPacket};
use linkgauge::protocol::pakbus::record::{self, BlockContent};
use linkgauge::protocol::pakbus::reply::LoggerReply;
use linkgauge::protocol::pakbus::table;
use rustix::process::Signal;

use crate::program::{PATIENCE, Running};

/// A logger and where it listens.
pub struct Logger {
    pub process: Running,
    pub place: String,
}

impl Logger {
    pub fn start(flags: &[&str]) -> Logger {
        let mut process = Running::start(&[&["lab", "logger"], flags].concat());
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (_, place) = line.trim().rsplit_once(" on ").unwrap_or_else(|| panic!("'{line}'"));
        let place = place.split_once("://").unwrap().1.to_owned();
        Logger { process, place }
    }

    /// On a TCP port of its own.
    pub fn on_tcp(flags: &[&str]) -> Logger {
        Logger::start(&[&["--listen", "tcp://127.0.0.1:0"], flags].concat())
    }

    /// Its output after it was stopped.
    pub fn summary(mut self) -> String {
        self.process.signal(Signal::INT);
        let status = self.process.wait();
        assert!(status.success(), "{status}");
        let mut printed = String::new();
        self.process.0.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
        printed
    }
}

/// A client of our own: one command at a time.
pub struct Client {
    stream: TcpStream,
    decoder: FrameDecoder,
    unread: Vec<u8>,
    address: u16,
    transaction: u8,
}

impl Client {
    pub fn connect(place: &str, address: u16) -> Client {
        let stream = TcpStream::connect(place).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream, decoder: FrameDecoder::default(), unread: Vec::new(), address, transaction: 0 }
    }

    pub fn ask(&mut self, command: &Ask) -> LoggerReply {
        self.transaction += 1;
        let (protocol, message) = command.write(self.transaction);
        let hop = Hop { state: LinkState::READY, to: 1, from: self.address, expect_more: 1, priority: 1 };
        let route = PacketRoute { protocol, to: 1, from: self.address, hops: 0 };
        let mut bytes = Vec::new();
        frame::write(&PakBusPacket { hop, message: Some((route, &message)) }.write(), &mut bytes);
        self.stream.write_all(&bytes).unwrap();
        loop {
            let (used, packet) = self.decoder.read(&self.unread);
            let packet = packet.map(<[u8]>::to_vec);
            self.unread.drain(..used);
            if let Some(packet) = packet {
                let (route, message) = PakBusPacket::read(&packet).unwrap().message.unwrap();
                assert_eq!((route.to, route.from), (self.address, 1));
                let (transaction, reply) = LoggerReply::read(route.protocol, message).unwrap();
                assert_eq!(transaction, self.transaction);
                return reply;
            }
            let mut bytes = [0; 4096];
            let length = self.stream.read(&mut bytes).unwrap();
            assert!(length > 0, "the logger closed the connection");
            self.unread.extend(&bytes[..length]);
        }
    }

    pub fn file(&mut self, name: &str) -> Vec<u8> {
        let mut file = Vec::new();
        loop {
            let offset = file.len() as u32;
            let fetch =
                FetchRequest { security: 0, name: name.to_owned(), is_last: false, offset, swath: 991 };
            let LoggerReply::Fetch { code: ReplyCode::COMPLETE, data, .. } = self.ask(&Ask::Fetch(fetch))
            else {
                panic!("{name} is refused")
            };
            file.extend(&data);
            if data.len() < 991 {
                return file;
            }
        }
    }

    /// The values of some records of the second table.
    pub fn records(&mut self, from: u32, before: u32) -> Vec<record::TableRecord> {
        let definitions = table::read(&self.file(".TDF")).unwrap();
        let mut records: Vec<record::TableRecord> = Vec::new();
        while from + (records.len() as u32) < before {
            let span = RecordRange::Numbers(from + records.len() as u32, before);
            let signature = definitions[1].signature();
            let selections = vec![RecordSelection { table: 2, signature, span, fields: Vec::new() }];
            let reply = self.ask(&Ask::Collect { security: 0, mode: span.mode(), selections });
            let LoggerReply::Collect(Ok(body)) = reply else { panic!("{reply:?}") };
            let (blocks, _) = record::read(&definitions, &body).unwrap();
            let BlockContent::Records(more) = &blocks[0].content else { panic!() };
            assert!(!more.is_empty());
            records.extend(more.iter().cloned());
        }
        records
    }
}
