//! A System V message queue, as far as this crate needs one: the four calls, none of which waits unless it is asked to.
//!
//! A queue has no descriptor and no name in a file system. It is there until a process removes it, even long after its
//! maker has ended; record.rs is about that. A queue is identified by its number *and* its key: numbers come again
//! after some time, keys are drawn by lot.

use std::io;

use libc::{c_long, c_void};

/// What a message in a queue is: a piece of a request or response.
pub(crate) const PIECE: c_long = 1;
/// A call without content to a waiting reader: look around.
pub(crate) const CALL: c_long = 2;

/// Longest text of one message, bytes. With its header (48 bytes, `struct msg_msg` in the kernel's ipc/msgutil.c) it takes one page there.
pub(crate) const LONGEST_TEXT: usize = 4048;

/// Names a queue. Copies name the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    number: i32,
    key: i32,
}

/// How a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) key: i32,
    /// The process that made it.
    pub(crate) maker: u32,
    /// When it was made, or its owner changed: seconds since 1970.
    pub(crate) changed_s: u64,
    pub(crate) messages: u64,
    /// Bytes that it holds, and may hold.
    pub(crate) bytes: u64,
    pub(crate) most_bytes: u64,
}

/// Room for one message. One byte more than may come, so that what is too long is seen.
#[repr(C)]
pub(crate) struct Message {
    kind: c_long,
    text: [u8; LONGEST_TEXT + 1],
    length: usize,
}

impl Default for Message {
    fn default() -> Self {
        Message { kind: 0, text: [0; LONGEST_TEXT + 1], length: 0 }
    }
}

impl Message {
    /// Its text, unless it was a call.
    pub(crate) fn piece(&self) -> Option<&[u8]> {
        (self.kind != CALL).then(|| &self.text[..self.length])
    }

    /// A piece, to be sent.
    pub(crate) fn set(&mut self, parts: [&[u8]; 2]) {
        self.kind = PIECE;
        self.length = 0;
        for part in parts {
            self.text[self.length..self.length + part.len()].copy_from_slice(part);
            self.length += part.len();
        }
    }

    fn call() -> Self {
        Message { kind: CALL, ..Message::default() }
    }
}

impl Queue {
    /// Makes one for this user alone.
    ///
    /// # Errors
    /// `EEXIST` if the key is taken, `ENOSPC` if there are as many as there may be (kernel.msgmni), `ENOSYS` without System V.
    pub(crate) fn make(key: i32) -> io::Result<Queue> {
        Queue::get(key, libc::IPC_CREAT | libc::IPC_EXCL | 0o600)
    }

    /// The one with that key, if there is one that this user may reach.
    pub(crate) fn with_key(key: i32) -> io::Result<Queue> {
        Queue::get(key, 0)
    }

    fn get(key: i32, flags: i32) -> io::Result<Queue> {
        // SAFETY: takes and gives numbers.
        let number = unsafe { libc::msgget(key, flags) };
        if number < 0 { Err(io::Error::last_os_error()) } else { Ok(Queue { number, key }) }
    }

    pub(crate) fn from_word(word: u64) -> Queue {
        Queue { number: (word >> 32) as i32, key: word as i32 }
    }

    /// Both of its names, for the shared memory.
    pub(crate) fn word(self) -> u64 {
        u64::from(self.number as u32) << 32 | u64::from(self.key as u32)
    }

    pub(crate) fn number(self) -> i32 {
        self.number
    }

    #[cfg(test)]
    pub(crate) fn key(self) -> i32 {
        self.key
    }

    /// Puts a message in, if there is room. Whether there was. Never waits.
    pub(crate) fn put(self, message: &Message) -> io::Result<bool> {
        let from = std::ptr::from_ref(message).cast::<c_void>();
        // SAFETY: a message begins with its kind and its text, `length` is within the text, and both outlive the call.
        let status = unsafe { libc::msgsnd(self.number, from, message.length, libc::IPC_NOWAIT) };
        if status == 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            full if matches!(full.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(false),
            error => Err(error),
        }
    }

    /// Calls a reader that waits in [`take`](Self::take). Without room this is not needed: the reader then finds
    /// something.
    pub(crate) fn call(self) -> io::Result<bool> {
        self.put(&Message::call())
    }

    /// Takes the next message, if there is one; waits for one if it may. Whether it took one: a wait may end without.
    pub(crate) fn take(self, message: &mut Message, may_wait: bool) -> io::Result<bool> {
        let flags = libc::MSG_NOERROR | if may_wait { 0 } else { libc::IPC_NOWAIT };
        let into = std::ptr::from_mut(message).cast::<c_void>();
        // SAFETY: a message begins with its kind and its text, which has as many bytes as are said, and is ours alone.
        let length = unsafe { libc::msgrcv(self.number, into, LONGEST_TEXT + 1, 0, flags) };
        if length >= 0 {
            message.length = length as usize;
            return Ok(true);
        }
        match io::Error::last_os_error() {
            nothing if matches!(nothing.raw_os_error(), Some(libc::ENOMSG | libc::EINTR)) => Ok(false),
            error => Err(error),
        }
    }

    pub(crate) fn state(self) -> io::Result<State> {
        let found = self.look()?;
        Ok(State {
            key: found.msg_perm.__key,
            maker: found.msg_perm.cuid,
            changed_s: found.msg_ctime as u64,
            messages: found.msg_qnum,
            bytes: found.__msg_cbytes,
            most_bytes: found.msg_qbytes,
        })
    }

    /// Lets another user reach it too; its maker keeps the right.
    pub(crate) fn share_with(self, uid: u32) -> io::Result<()> {
        let mut found = self.look()?;
        found.msg_perm.uid = uid;
        self.control(libc::IPC_SET, &mut found)
    }

    /// Removes it if it still has the key that it had: a number that another queue has got since is left alone.
    pub(crate) fn remove(self) -> io::Result<()> {
        if self.state()?.key != self.key {
            return Err(io::Error::from_raw_os_error(libc::EIDRM));
        }
        let mut unused = zeroed();
        self.control(libc::IPC_RMID, &mut unused)
    }

    fn look(self) -> io::Result<libc::msqid_ds> {
        let mut found = zeroed();
        self.control(libc::IPC_STAT, &mut found)?;
        Ok(found)
    }

    fn control(self, command: i32, with: &mut libc::msqid_ds) -> io::Result<()> {
        // SAFETY: the structure is of the kind that these commands read or write, and outlives the call.
        let status = unsafe { libc::msgctl(self.number, command, with) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn zeroed() -> libc::msqid_ds {
    // SAFETY: a structure of numbers, of which zero is one.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_and_the_key_guards_the_number() {
        let queue = Queue::make(getrandom::u32().unwrap() as i32 | 1).unwrap();
        assert_eq!(Queue::from_word(queue.word()), queue);
        assert_eq!(Queue::with_key(queue.key()).unwrap(), queue);
        let (mut message, mut taken) = (Message::default(), Message::default());
        assert!(!queue.take(&mut taken, false).unwrap());
        message.set([b"head", b"and tail"]);
        assert!(queue.put(&message).unwrap() && queue.call().unwrap());
        let state = queue.state().unwrap();
        assert_eq!((state.messages, state.bytes, state.key), (2, 12, queue.key()));
        assert_eq!(state.maker, rustix::process::geteuid().as_raw());
        assert!(queue.take(&mut taken, true).unwrap());
        assert_eq!(taken.piece(), Some(&b"headand tail"[..]));
        assert!(queue.take(&mut taken, true).unwrap() && taken.piece().is_none());
        let another = Queue { key: queue.key() ^ 2, ..queue };
        assert_eq!(another.remove().unwrap_err().raw_os_error(), Some(libc::EIDRM));
        queue.remove().unwrap();
        assert!(queue.state().is_err());
    }

    #[test]
    fn a_full_queue_says_so_and_does_not_wait() {
        let queue = Queue::make(getrandom::u32().unwrap() as i32 | 1).unwrap();
        let mut message = Message::default();
        message.set([&[7; LONGEST_TEXT], &[]]);
        let most = queue.state().unwrap().most_bytes as usize / LONGEST_TEXT;
        let put = (0..100).take_while(|_| queue.put(&message).unwrap()).count();
        queue.remove().unwrap();
        assert!(put == most && put > 0, "{put} of {most}");
    }
}
