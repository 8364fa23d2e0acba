//! What the contract says of a synchronous fabric's posts: no allocation and no system call. It has a process of its own, because its
//! thread never ends.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use verbena_fabric::shm::{Settings, Shm};
use verbena_fabric::{Batch, Class, Fabric, Operation, Pool, Rights};
use verbena_terms::{Incarnation, ViewNumber};
use verbena_testkit::programs::alone;

const POSTS: u64 = 10_000;

/// Where the kernel's clocks are read without a system call.
const READ_BY_PROGRAMS: [&str; 3] = ["tsc", "kvm-clock", "arch_sys_counter"];

#[test]
fn a_post_takes_no_allocation_and_no_system_call() {
    alone("shm_posts::a_post_takes_no_allocation_and_no_system_call", post_again_and_again);
}

fn post_again_and_again() {
    let clock = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").unwrap();
    if !READ_BY_PROGRAMS.contains(&clock.trim()) {
        return println!("skipped: the clock {clock:?} of this machine is read by a system call");
    }
    let open = |rank| {
        let identity = Incarnation::new(rank, 1);
        Shm::open(Settings { identity, pool: Pool::new(1 << 20), allowed_users: vec![] }).unwrap()
    };
    let (owner, caller) = (open(1), open(2));
    let region = owner.register(4096, ViewNumber(1)).unwrap();
    let peer = caller.connect(owner.identity(), &owner.address()).unwrap();
    let deadline = caller.clock().now() + Duration::from_secs(60);
    let remote = peer.open(&region.key(Rights::Change), deadline).unwrap();

    let posted = Arc::new(AtomicU64::new(0));
    let allocated = Arc::new(AtomicU64::new(u64::MAX));
    let (counted, counted_allocations) = (posted.clone(), allocated.clone());
    std::thread::spawn(move || {
        let mut buffer = Some(caller.pool().take(64).unwrap());
        let before = ALLOCATIONS.get();
        forbid_system_calls();
        for _ in 0..POSTS {
            let mut batch = Batch::read_words(&[0, 8]);
            batch.push(Operation::FetchAdd { at: 0, addend: 1 });
            batch.push(Operation::Read { at: 0, into: buffer.take().unwrap() });
            let done = remote.post(batch, Class::Control, deadline).poll_now().unwrap().unwrap();
            for done in done {
                if let verbena_fabric::Done::Buffer(back) = done {
                    buffer = Some(back);
                }
            }
            counted.fetch_add(1, Ordering::Release);
        }
        counted_allocations.store(ALLOCATIONS.get() - before, Ordering::Release);
        // It could not even end without a system call; it ends with its process.
        loop {
            std::hint::spin_loop();
        }
    });
    let since = Instant::now();
    while allocated.load(Ordering::Acquire) == u64::MAX && since.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(posted.load(Ordering::Acquire), POSTS, "a post made a system call, and its thread was ended");
    assert_eq!(allocated.load(Ordering::Acquire), 0, "allocations in {POSTS} posts");
    assert_eq!(region.load(0), Ok(POSTS));
}

/// From here on any system call is the end of this thread. (The strict mode would also forbid to read the time stamp counter.)
fn forbid_system_calls() {
    // One instruction: whatever it is, kill the thread.
    let mut kill = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_KILL_THREAD,
    };
    let program = libc::sock_fprog { len: 1, filter: &raw mut kill };
    // SAFETY: both concern the calling thread alone, and the program outlives the call that copies it.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(refused, 0, "{}", std::io::Error::last_os_error());
}

/// The system's allocator, and how often the thread has called it.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is handed on to the system's allocator as it came; the counter is a plain cell of the thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise about the layout is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise about the block is handed on; every block came from `System`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
