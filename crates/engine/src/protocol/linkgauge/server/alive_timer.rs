//! Timer for the messages that a server sends on a control connection that is silent during a measurement, so that devices
//! on the path do not forget the connection.

use std::time::Duration;

use linkgauge_model::clock::Time;

/// The silence of a control connection.
#[derive(Default)]
pub(super) struct AliveTimer {
    /// The longest silence, if the client limits it.
    interval: Option<Duration>,
    due: Option<Time>,
}

impl AliveTimer {
    pub fn new(interval: Option<Duration>) -> AliveTimer {
        AliveTimer { interval, due: None }
    }

    /// Time when the silence ends; the silence begins now if it has not begun.
    pub(super) fn due(&mut self, now: Time) -> Time {
        self.interval.map_or(Time::NEVER, |interval| *self.due.get_or_insert(now + interval))
    }

    /// Ends the current silence, because something moved on the connection.
    pub(super) fn restart(&mut self) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_ends_after_the_interval_of_the_client() {
        assert_eq!(AliveTimer::default().due(Time(0)), Time::NEVER);
        let mut timer = AliveTimer::new(Some(Duration::from_nanos(100)));
        assert_eq!((timer.due(Time(5)), timer.due(Time(50))), (Time(105), Time(105)));
        timer.restart();
        assert_eq!(timer.due(Time(105)), Time(205));
    }
}
