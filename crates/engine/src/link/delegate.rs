//! Methods of links that do nothing of their own. No method of [`Link`](super::Link) has a default, so every link names all of
//! them, and one that wraps another cannot lose what the inner one does.

/// The named methods of a link that wraps another: they call those of the inner link. Where the inner link is not a field, a second
/// expression is the one that can change it.
macro_rules! delegate_link {
    ($this:ident => $inner:expr; $($method:ident)+) => {
        $($crate::link::delegate::delegate_link!(@ $method $this $inner, $inner);)+
    };
    ($this:ident => $inner:expr, $inner_mut:expr; $($method:ident)+) => {
        $($crate::link::delegate::delegate_link!(@ $method $this $inner, $inner_mut);)+
    };
    (@ caps $this:ident $inner:expr, $mut:expr) => {
        fn caps(&$this) -> &$crate::link::Caps {
            $inner.caps()
        }
    };
    (@ facts $this:ident $inner:expr, $mut:expr) => {
        fn facts(&$this) -> $crate::link::Facts {
            $inner.facts()
        }
    };
    (@ status $this:ident $inner:expr, $mut:expr) => {
        fn status(&$this) -> $crate::link::LinkStatus {
            $inner.status()
        }
    };
    (@ tune $this:ident $inner:expr, $mut:expr) => {
        fn tune(&mut $this, tuning: &$crate::link::party::Tuning) {
            $mut.tune(tuning);
        }
    };
    (@ send $this:ident $inner:expr, $mut:expr) => {
        #[inline]
        fn send(&mut $this, bytes: &[u8], within: ::std::time::Duration) -> Result<usize, $crate::link::Fault> {
            $mut.send(bytes, within)
        }
    };
    (@ receive $this:ident $inner:expr, $mut:expr) => {
        #[inline]
        fn receive(
            &mut $this,
            into: &mut [u8],
            within: ::std::time::Duration,
        ) -> Result<usize, $crate::link::Fault> {
            $mut.receive(into, within)
        }
    };
    (@ send_batch $this:ident $inner:expr, $mut:expr) => {
        #[inline]
        fn send_batch(
            &mut $this,
            messages: &[u8],
            message: usize,
            within: ::std::time::Duration,
        ) -> Result<usize, $crate::link::Fault> {
            $mut.send_batch(messages, message, within)
        }
    };
    (@ receive_batch $this:ident $inner:expr, $mut:expr) => {
        #[inline]
        fn receive_batch(
            &mut $this,
            into: &mut $crate::link::Batch,
            within: ::std::time::Duration,
        ) -> Result<(), $crate::link::Fault> {
            $mut.receive_batch(into, within)
        }
    };
    (@ finish_sending $this:ident $inner:expr, $mut:expr) => {
        fn finish_sending(&mut $this) -> Result<(), $crate::link::Fault> {
            $mut.finish_sending()
        }
    };
    (@ abort $this:ident $inner:expr, $mut:expr) => {
        fn abort(&mut $this) {
            $mut.abort();
        }
    };
    (@ reopen $this:ident $inner:expr, $mut:expr) => {
        fn reopen(&mut $this, within: ::std::time::Duration) -> Result<(), $crate::link::Fault> {
            $mut.reopen(within)
        }
    };
    (@ second_handle $this:ident $inner:expr, $mut:expr) => {
        fn second_handle(&$this) -> Result<Box<dyn $crate::link::Link>, $crate::link::Fault> {
            $inner.second_handle()
        }
    };
    (@ read_send_stamps $this:ident $inner:expr, $mut:expr) => {
        fn read_send_stamps(&mut $this, into: &mut $crate::link::stamps::SendStamps) {
            $mut.read_send_stamps(into);
        }
    };
    (@ port_control $this:ident $inner:expr, $mut:expr) => {
        fn port_control(&mut $this) -> Option<&mut dyn $crate::link::serial_line::PortControl> {
            $mut.port_control()
        }
    };
    (@ descriptor $this:ident $inner:expr, $mut:expr) => {
        fn descriptor(&$this) -> Option<$crate::link::BorrowedHandle<'_>> {
            $inner.descriptor()
        }
    };
}

/// The named methods of a link that lacks what they are for: it moves one message at a time, has no half-close and no reset, is
/// opened once, and has no stamps, serial port or descriptor.
macro_rules! plain_link {
    ($($method:ident)+) => {
        $($crate::link::delegate::plain_link!(@ $method);)+
    };
    (@ tune) => {
        fn tune(&mut self, _tuning: &$crate::link::party::Tuning) {}
    };
    (@ send_batch) => {
        #[inline]
        fn send_batch(
            &mut self,
            messages: &[u8],
            message: usize,
            within: ::std::time::Duration,
        ) -> Result<usize, $crate::link::Fault> {
            $crate::link::batch::send_first(self, messages, message, within)
        }
    };
    (@ receive_batch) => {
        #[inline]
        fn receive_batch(
            &mut self,
            into: &mut $crate::link::Batch,
            within: ::std::time::Duration,
        ) -> Result<(), $crate::link::Fault> {
            $crate::link::batch::receive_single(self, into, within)
        }
    };
    (@ finish_sending) => {
        fn finish_sending(&mut self) -> Result<(), $crate::link::Fault> {
            Ok(())
        }
    };
    (@ abort) => {
        fn abort(&mut self) {}
    };
    (@ reopen) => {
        fn reopen(&mut self, _within: ::std::time::Duration) -> Result<(), $crate::link::Fault> {
            Err($crate::link::Fault::Closed)
        }
    };
    (@ read_send_stamps) => {
        fn read_send_stamps(&mut self, _into: &mut $crate::link::stamps::SendStamps) {}
    };
    (@ port_control) => {
        fn port_control(&mut self) -> Option<&mut dyn $crate::link::serial_line::PortControl> {
            None
        }
    };
    (@ descriptor) => {
        fn descriptor(&self) -> Option<$crate::link::BorrowedHandle<'_>> {
            None
        }
    };
}

pub(crate) use {delegate_link, plain_link};
