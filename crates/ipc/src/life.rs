//! How clients see at once that the helper has ended: the kernel then changes a word of its page, however the helper
//! ended (robust futexes, set_robust_list(2)).
//!
//! The kernel does so when a thread ends, before it gives up the thread's files, and so before any lock of the
//! process's files is free. A process that has such a lock afterwards therefore knows that all clients of the earlier
//! process see its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::error::Error;
use crate::memory::{Mapping, Memory};

/// What the kernel sets in the word when its thread has ended (FUTEX_OWNER_DIED); and this process, when it does without that thread.
const ENDED: u64 = 0x4000_0000;

/// Whether the process that writes such a word has not ended.
pub(crate) fn lives(word: u64) -> bool {
    word & ENDED == 0
}

/// The thread whose number stands in the word, for as long as this is there.
pub(crate) struct Life {
    /// Dropped, it has the thread end.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    is_told: bool,
}

impl Life {
    /// Begins it, in this word of the page.
    pub(crate) fn begin(page: Arc<Mapping>, word: usize) -> Result<Life, Error> {
        let (end, ends) = channel();
        let (tell, told) = channel();
        let thread = std::thread::Builder::new()
            .name("verbena-life".into())
            .spawn(move || live(&page, word, &tell, &ends))
            .map_err(|source| Error::System { doing: "start a thread", source })?;
        let is_told = told.recv().unwrap_or(false);
        Ok(Life { end: Some(end), thread: Some(thread), is_told })
    }

    /// Whether the kernel will say when it is over. (All that there are do; some that only look like it may not.)
    pub(crate) fn is_told(&self) -> bool {
        self.is_told
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        drop(self.end.take());
        // It does nothing that panics.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// As the kernel has it: the next of a ring.
#[repr(C)]
struct Entry {
    next: *const Entry,
}

#[repr(C)]
struct Head {
    list: Entry,
    /// From an entry to its futex.
    offset: libc::c_long,
    pending: *const Entry,
}

fn live(page: &Mapping, word: usize, tell: &Sender<bool>, ends: &Receiver<()>) {
    let mut entry = Entry { next: std::ptr::null() };
    let mut head = Head { list: Entry { next: &raw const entry }, offset: 0, pending: std::ptr::null() };
    entry.next = &raw const head.list;
    head.offset = (page.futex_address(word) as isize).wrapping_sub((&raw const entry) as isize) as libc::c_long;
    // SAFETY: the list is of this thread, whose stack both parts are on: the kernel walks it when the thread ends, before its stack can go. The futex is in the page, which this
    // thread keeps mapped. What was set before is the C library's list, for mutexes of a kind that this thread has none of.
    let is_told = unsafe { libc::syscall(libc::SYS_set_robust_list, &raw const head, size_of::<Head>()) } == 0;
    // The kernel changes the word of the thread whose number is in it.
    let number = if is_told { rustix::thread::gettid().as_raw_pid() as u64 } else { 0 };
    page.store(word, number, Ordering::SeqCst);
    // The thread that began it waits for that.
    let _ = tell.send(is_told);
    let _ = ends.recv();
    page.store(word, ENDED, Ordering::SeqCst);
    // SAFETY: without a list the kernel walks none; what it would walk is about to go.
    unsafe { libc::syscall(libc::SYS_set_robust_list, std::ptr::null::<Head>(), size_of::<Head>()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Sharing;

    #[test]
    fn the_word_says_whether_its_thread_is_there() {
        let (page, _descriptor) = Mapping::create("test", 4096, Sharing::ReadOnly).unwrap();
        let page = Arc::new(page);
        let life = Life::begin(page.clone(), 4).unwrap();
        assert!(life.is_told());
        assert!(lives(page.load(4, Ordering::SeqCst)) && page.load(4, Ordering::SeqCst) > 0);
        drop(life);
        assert!(!lives(page.load(4, Ordering::SeqCst)));
    }
}
