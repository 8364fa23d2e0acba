//! Locks of the cluster, memory that its nodes share, and copies of pages, for C.
//!
//! Nothing that C can pass is undefined here but what no library can tell: memory that is not there, strings that do not end, a connection that was
//! closed. A connection is a pointer; a *hold* is two numbers, to be copied freely, and what they stand for is kept with the connection. So a hold that
//! was released, is another connection's or was never given is an error and not a crash.
//!
//! No panic leaves: each function catches it and says [`verbena_result::VERBENA_INTERNAL`]. No function blocks another thread's: a connection that
//! somebody uses is [`verbena_result::VERBENA_BUSY`], and what only looks (`verbena_is_held` and its like) never waits.
//!
//! `include/verbena.h` is made from these files and held against them by the tests.

mod checkpoints;
mod error;
mod locks;
mod memory;
mod pages;
mod windows;

pub use checkpoints::{
    verbena_checkpoint_process, verbena_checkpoints, verbena_checkpoints_join, verbena_checkpoints_make,
    verbena_checkpoints_part, verbena_checkpoints_remove, verbena_checkpoints_roll_back, verbena_checkpoints_save,
    verbena_checkpoints_show, verbena_checkpoints_wait, verbena_joined,
};
pub use error::{verbena_last_error, verbena_result, verbena_version};
pub use locks::{
    VERBENA_MAX_NAME_BYTES, VERBENA_NO_LIMIT, verbena_acquire, verbena_close, verbena_connect, verbena_good_for_ns,
    verbena_held_until_ns, verbena_hold, verbena_is_held, verbena_lock_remove, verbena_locks, verbena_mode,
    verbena_mode_of, verbena_release, verbena_share, verbena_token, verbena_wait_lost,
};
pub use memory::{
    VERBENA_MAX_SEGMENT_NAME_BYTES, verbena_memory, verbena_memory_allocate, verbena_memory_close,
    verbena_memory_connect, verbena_memory_find, verbena_memory_get, verbena_memory_list, verbena_memory_lock,
    verbena_memory_locks, verbena_memory_put, verbena_memory_release, verbena_memory_release_name, verbena_memory_stat,
    verbena_memory_unlock, verbena_segment, verbena_segment_info,
};
pub use pages::{
    verbena_field, verbena_fill, verbena_fill_answer, verbena_fill_free, verbena_fill_intent, verbena_fill_is_current,
    verbena_fill_key, verbena_fill_new, verbena_fill_read, verbena_fill_register, verbena_fill_stamp, verbena_intent,
    verbena_outcome, verbena_pages, verbena_pages_close, verbena_pages_connect, verbena_update_begin,
    verbena_update_end, verbena_writes,
};
pub use windows::{
    verbena_memory_window, verbena_window, verbena_window_bytes, verbena_window_close, verbena_window_data,
    verbena_window_holds, verbena_window_is_newest, verbena_window_newest, verbena_window_stamp_ns,
    verbena_window_version,
};
