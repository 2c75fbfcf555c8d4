//! The agents of a mesh as processes, and the loop that carries out a mesh with them.
//!
//! Each agent has three threads: one writes its orders, one reads its answers, one keeps the end of its messages. So an agent that
//! reads nothing, or writes without end, blocks no other.

use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use super::coordinator::{Coordinator, CoordinatorAction, MeshProgress};
use super::hosts::{HostList, Reach};
use super::wire::{Answer, MAX_ANSWER_BYTES, Order, parse_answer, read_line, to_line};
use linkgauge_model::clock::Clock;

/// Lines before the first answer that are not read: greetings of a login.
const MAX_GREETING_LINES: usize = 100;

/// The end of an agent's messages that is kept.
const MAX_MESSAGE_BYTES: usize = 2000;

/// Answers that wait, of all agents. Agents wait when there are more.
const MAX_WAITING_EVENTS: usize = 64;

/// Time between two reports of the progress, and between two looks at the interrupt flag.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time that agents get to end by themselves.
const END_TIME: Duration = Duration::from_secs(3);

/// Event that a thread of an agent reports.
enum AgentEvent {
    Answered(Box<Answer>),
    Ended(String),
}

type EventSender = SyncSender<(usize, AgentEvent)>;

/// The running agents.
pub struct Agents {
    agents: Vec<Option<AgentProcess>>,
    events: Receiver<(usize, AgentEvent)>,
}

struct AgentProcess {
    child: Child,
    /// Orders to the agent; if closed, the agent ends.
    orders: Option<Sender<Vec<u8>>>,
}

/// The program and the arguments that start the agent of a host. `None`: it has no agent.
fn agent_command(reach: &Reach, program: &Path) -> Option<(PathBuf, Vec<String>)> {
    let own = ["agent", "--stdio"].map(str::to_owned);
    match reach {
        Reach::Server(_) => None,
        Reach::Local => Some((program.to_owned(), own.to_vec())),
        Reach::Ssh(host) => {
            // Without a terminal there is no password to type.
            let mut words: Vec<String> = ["-T", "-o", "BatchMode=yes", "--"].map(str::to_owned).to_vec();
            words.extend([host.clone(), "linkgauge".to_owned()]);
            words.extend(own);
            Some((PathBuf::from("ssh"), words))
        }
        Reach::Command(words) => {
            let (program, words) = words.split_first()?;
            Some((PathBuf::from(program), words.to_vec()))
        }
    }
}

impl Agents {
    /// Starts the agents of all hosts. `program` is this program, for hosts that are local. An agent that cannot be started is a
    /// lost host.
    pub fn start(list: &HostList, program: &Path) -> Agents {
        let (sender, events) = sync_channel(MAX_WAITING_EVENTS);
        let mut agents = Vec::new();
        let mut failed = Vec::new();
        for (host, entry) in list.hosts.iter().enumerate() {
            agents.push(match agent_command(&entry.reach, program) {
                None => None,
                Some((program, words)) => match AgentProcess::start(host, &program, &words, &sender) {
                    Ok(agent) => Some(agent),
                    Err(error) => {
                        failed.push((host, format!("{}: cannot be started: {error}", program.display())));
                        None
                    }
                },
            });
        }
        if !failed.is_empty() {
            // In a thread, because the channel may be full.
            std::thread::spawn(move || {
                for (host, why) in failed {
                    let _ = sender.send((host, AgentEvent::Ended(why)));
                }
            });
        }
        Agents { agents, events }
    }

    /// Carries out a mesh: until it is over, or `cancel` is set. Calls `on_progress` now and then.
    pub fn carry_out(
        &mut self,
        coordinator: &mut Coordinator,
        clock: &Clock,
        cancel: &AtomicBool,
        on_progress: &mut dyn FnMut(&MeshProgress),
    ) {
        let mut reported: Option<Instant> = None;
        loop {
            while let Some(action) = coordinator.next_action() {
                self.perform(action);
            }
            if coordinator.is_over() {
                break;
            }
            if cancel.load(Relaxed) {
                coordinator.interrupt(clock.now());
                continue;
            }
            if reported.is_none_or(|at| at.elapsed() >= PROGRESS_INTERVAL) {
                on_progress(&coordinator.progress());
                reported = Some(Instant::now());
            }
            match self.events.recv_timeout(POLL_INTERVAL) {
                Ok((host, AgentEvent::Answered(answer))) => coordinator.on_answer(host, *answer, clock.now()),
                Ok((host, AgentEvent::Ended(why))) => coordinator.on_end(host, why, clock.now()),
                Err(RecvTimeoutError::Timeout) => {}
                // All agents have ended, which their events have said.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL_INTERVAL),
            }
            if coordinator.next_deadline().is_some_and(|deadline| clock.now() >= deadline) {
                coordinator.on_time(clock.now());
            }
        }
        on_progress(&coordinator.progress());
    }

    fn perform(&mut self, action: CoordinatorAction) {
        match action {
            CoordinatorAction::Send { host, order } => self.send(host, &order),
            CoordinatorAction::End { host } => {
                if let Some(agent) = &mut self.agents[host] {
                    agent.orders = None;
                }
            }
        }
    }

    /// Sends an order. A writer that has ended is one whose agent has ended, which is reported elsewhere.
    fn send(&self, host: usize, order: &Order) {
        if let Some(orders) = self.agents[host].as_ref().and_then(|agent| agent.orders.as_ref()) {
            let _ = orders.send(to_line(order));
        }
    }
}

impl Drop for Agents {
    /// Ends the agents by closing their inputs. Agents that do not end are killed.
    fn drop(&mut self) {
        let mut left: Vec<AgentProcess> = self.agents.drain(..).flatten().collect();
        left.iter_mut().for_each(|agent| agent.orders = None);
        let began = Instant::now();
        while !left.is_empty() && began.elapsed() < END_TIME {
            // A full channel would keep a reader from seeing the end.
            while self.events.try_recv().is_ok() {}
            left.retain_mut(|agent| matches!(agent.child.try_wait(), Ok(None)));
            std::thread::sleep(Duration::from_millis(10));
        }
        for agent in &mut left {
            let _ = agent.child.kill();
            let _ = agent.child.wait();
        }
    }
}

impl AgentProcess {
    fn start(
        host: usize,
        program: &Path,
        words: &[String],
        events: &EventSender,
    ) -> std::io::Result<AgentProcess> {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is for the coordinator, which then ends its agents.
        linkgauge_system::in_own_group(&mut command);
        let mut child = command.spawn()?;
        let taken = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut input), Some(output), Some(errors)) = taken else {
            return Err(std::io::Error::other("it has no pipes"));
        };
        let (orders, lines) = channel::<Vec<u8>>();
        std::thread::spawn(move || {
            while let Ok(line) = lines.recv() {
                if input.write_all(&line).and_then(|()| input.flush()).is_err() {
                    break;
                }
            }
        });
        let (last_words, message) = channel();
        std::thread::spawn(move || last_words.send(read_end(errors)));
        let events = events.clone();
        std::thread::spawn(move || {
            let why = read_answers(host, output, &events);
            // What it printed says more than that it ended.
            let message = message.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
            let last = message.lines().rev().find(|line| !line.trim().is_empty());
            let why = last.map_or(why.clone(), |last| format!("{why}: {}", last.trim()));
            let _ = events.send((host, AgentEvent::Ended(why)));
        });
        Ok(AgentProcess { child, orders: Some(orders) })
    }
}

/// Passes the answers on until they end. Returns why they ended.
fn read_answers(host: usize, output: impl Read, events: &EventSender) -> String {
    let mut output = BufReader::new(output);
    let (mut greeting, mut has_answered) = (0, false);
    loop {
        let line = match read_line(&mut output, MAX_ANSWER_BYTES) {
            Ok(Some(line)) => line,
            Ok(None) => return "its agent ended".to_owned(),
            Err(error) => return format!("its agent sent {error}"),
        };
        match parse_answer(&line) {
            Ok(answer) => {
                has_answered = true;
                if events.send((host, AgentEvent::Answered(Box::new(answer)))).is_err() {
                    return "the mesh is over".to_owned();
                }
            }
            Err(_) if !has_answered && !line.starts_with(b"{") => {
                greeting += 1;
                if greeting > MAX_GREETING_LINES {
                    return format!(
                        "it printed more than {MAX_GREETING_LINES} lines before its agent started: make its login silent for \
                         commands without a terminal"
                    );
                }
            }
            Err(error) => return format!("its agent sent something else than an answer: {error}"),
        }
    }
}

/// The last bytes of the messages of an agent.
fn read_end(mut errors: impl Read) -> String {
    let mut kept = Vec::new();
    let mut room = [0; 1024];
    while let Ok(length @ 1..) = errors.read(&mut room) {
        kept.extend_from_slice(&room[..length]);
        let surplus = kept.len().saturating_sub(MAX_MESSAGE_BYTES);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
