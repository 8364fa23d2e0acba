/* Locks of the Verbena cluster, memory that its nodes share, and copies of pages, for C11 and C++.
 *
 * Made by `VERBENA_WRITE_EXPECTED=1 cargo test -p verbena-capi --test it header`; do not edit. docs/reference/CLIENTS.md says how to use it.
 *
 * A verbena_locks is a connection to the helper of this machine (`verbena node`); a verbena_hold is a lock that it holds. A verbena_memory
 * is one for memory, a verbena_segment a piece of that. Functions that return a verbena_result return VERBENA_OK, or say why not; verbena_last_error
 * has the words. NULL is an error, not a crash.
 */

#ifndef VERBENA_H
#define VERBENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Longest name of a lock, bytes.
#define VERBENA_MAX_NAME_BYTES 1024

// As a limit: as long as it takes.
#define VERBENA_NO_LIMIT -1

// Longest name of a segment, bytes.
#define VERBENA_MAX_SEGMENT_NAME_BYTES 255

// How a call went. `verbena_last_error` has the words.
typedef enum verbena_result {
  // It is done.
  VERBENA_OK = 0,
  // The lock was not free in time, or not free at all where the limit was 0: nothing is held, and nothing is waited for. Or a checkpoint was not complete in time.
  VERBENA_NOT_IN_TIME = 1,
  // The lock was held, and was lost before this call: others may have had it. The hold is over.
  VERBENA_LOST = 2,
  // The hold is none of this connection: it was released, is another one's, or was never given. Nothing was changed.
  VERBENA_NOT_HELD = 3,
  // The helper refuses, and says why: no room for another lock; a share of what is shared already; alone what this connection holds shared; it takes no
  // requests for memory now.
  VERBENA_REFUSED = 4,
  // No helper listens there: start one with `verbena node`.
  VERBENA_NO_HELPER = 5,
  // The connection has ended, and with it all that was held by it. Close it and connect again.
  VERBENA_DISCONNECTED = 6,
  // The helper did not answer in time. What was asked may have been done; close the connection if it matters.
  VERBENA_NO_ANSWER = 7,
  // A null pointer, a length, a mode, a time, or what else cannot be. Nothing was done.
  VERBENA_BAD_ARGUMENT = 8,
  // Another thread is in a call with this connection. Nothing was done.
  VERBENA_BUSY = 9,
  // The connection was made before a fork(2), by the parent. Nothing was done.
  VERBENA_FORKED = 10,
  // The helper is of another version, or the system refused something.
  VERBENA_FAILED = 11,
  // A mistake in this library. The connection is of no use any more: close it.
  VERBENA_INTERNAL = 12,
  // Those who hold the lock wait for locks that this connection holds, and it was the last that began to wait: release what it holds, and begin anew.
  VERBENA_DEADLOCK = 13,
  // There is no segment of this name, or no such complete checkpoint.
  VERBENA_NOT_FOUND = 14,
  // There is a segment of this name.
  VERBENA_EXISTS = 15,
  // The segment was released.
  VERBENA_RELEASED = 16,
  // The segment's home is gone, and the value with it.
  VERBENA_GONE = 17,
  // The value is of another version than the one that was to be replaced. Nothing was put.
  VERBENA_CONFLICT = 18,
  // The segment's home is full, or the user has all that it may have. Nothing was allocated.
  VERBENA_NO_ROOM = 19,
  // Bytes that the segment does not have. Nothing was read or put.
  VERBENA_OUT_OF_RANGE = 20,
  // The segment is another user's. Nothing was read or changed.
  VERBENA_NOT_YOURS = 21,
  // Nobody knows whether it was done, or will be.
  VERBENA_UNKNOWN = 22,
  // It could not be done in time, and was not done.
  VERBENA_LATE = 23,
  // The segment's home took its memory back, and the value went with it. Its name is free.
  VERBENA_RECLAIMED = 24,
  // Somebody holds the lock or waits for it, and verbena_last_error says who: it was not removed.
  VERBENA_IN_USE = 25,
  // Another process began again: all go back to the newest complete checkpoint, so this one is to join again.
  VERBENA_ROLLED_BACK = 26,
  // The segment's value is not in memory that this program can read in place: verbena_memory_get reads it.
  VERBENA_ELSEWHERE = 27,
} verbena_result;

// What is to be done with a request.
typedef enum verbena_intent {
  // Forward it; use no copy and store none.
  VERBENA_PASS = 0,
  // Look for a copy; store the answer if there is none that is current.
  VERBENA_LOOK = 1,
  // It writes: forward it between verbena_update_begin and verbena_update_end.
  VERBENA_WRITE = 2,
} verbena_intent;

// How a lock is held.
typedef enum verbena_mode {
  // With others that hold it so.
  VERBENA_SHARED = 1,
  // Alone.
  VERBENA_EXCLUSIVE = 2,
} verbena_mode;

// Which requests write.
typedef enum verbena_writes {
  // Those that are not GET, HEAD or OPTIONS, and they touch everything.
  VERBENA_UNSAFE_METHODS = 0,
  // The same, and the application announces what they touch.
  VERBENA_ANNOUNCED = 1,
  // All.
  VERBENA_ALWAYS = 2,
  // None.
  VERBENA_NEVER = 3,
  // Those that are not GET, HEAD or OPTIONS, into a database that a relay sees: what else they change touches all pages whose dependencies are not known.
  VERBENA_DATABASE = 4,
} verbena_writes;

// What became of a write.
typedef enum verbena_outcome {
  // The whole answer was read.
  VERBENA_DONE = 0,
  // Not one byte of it was sent.
  VERBENA_NOT_SENT = 1,
  // It is not known.
  VERBENA_OUTCOME_UNKNOWN = 2,
} verbena_outcome;

// A request, from its head to the end of its answer. For one thread at a time.
typedef struct verbena_fill verbena_fill;

// A program's connection for locks, for one thread: what it holds it gets once more at once, so threads that are to exclude each other connect each for
// itself. What only looks can be called by any. When it is closed, or the program ends in whatever way, all that it holds is released.
typedef struct verbena_locks verbena_locks;

// A program's connection for memory that nodes share, for one thread; others hear VERBENA_BUSY meanwhile. Segments stay when it is closed; the locks that
// it holds are released.
typedef struct verbena_memory verbena_memory;

// A connection for copies of pages, for one thread at a time. When it is closed, or the program ends in whatever way, the outcome of each write that has
// not ended is unknown: what it touches is in no cache for a while.
typedef struct verbena_pages verbena_pages;

// A segment's value where it is, in the memory of its home: for programs of that node. For any thread, also when the connection has been closed; but nobody else uses it while one
// calls verbena_window_newest or verbena_window_close. It keeps the memory mapped until it is closed.
typedef struct verbena_window verbena_window;

// What was acquired, to be copied as one likes: no memory is behind it. One of zeros is none.
typedef struct verbena_hold {
  // No two holds of a process have the same.
  uint64_t number;
} verbena_hold;

// Which segment, to be copied as one likes, and sent to other programs of the cluster: no memory is behind it. Never used for another one. One of zeros is
// none.
typedef struct verbena_segment {
  // The rank of its home.
  uint32_t rank;
  // Which of the home's lives.
  uint32_t start;
  // Counted from 1 in that life.
  uint64_t number;
} verbena_segment;

// What is known of a segment.
typedef struct verbena_segment_info {
  // Which.
  struct verbena_segment segment;
  // Bytes of its value.
  uint64_t bytes;
  // Bytes that it takes at its home.
  uint64_t takes;
  // Of its value; 0 from verbena_memory_list, which does not ask for it.
  uint64_t version;
  // When that was put, nanoseconds since 1970 by its writer's clock; 0 if nothing was, for `null`, and from verbena_memory_list.
  uint64_t stamp_ns;
  // The user whose it is.
  uint32_t owner;
  // Nodes that can fill a slot at a time.
  uint32_t writers;
  // Nodes that are to hold it.
  uint32_t copies;
  // Nodes that do: fewer where some were lost, until others have room.
  uint32_t held;
  // What it promises, as verbena_memory_allocate takes it.
  char coherence[48];
  // What its home is called.
  char home[256];
  // What it is called; empty if it has no name.
  char name[256];
  // Milliseconds until its home takes its memory back; UINT64_MAX where that has given no notice.
  uint64_t goes_in_ms;
} verbena_segment_info;

// A process's place among those that save.
typedef struct verbena_joined {
  // The era that it is in: what it says when it saves. From 1 on.
  uint64_t era;
  // The newest complete checkpoint, from which it goes on; 0 if there is none.
  uint64_t number;
} verbena_joined;

// How the saving of checkpoints stands.
typedef struct verbena_checkpoints {
  // How often all began again, and 1.
  uint64_t era;
  // The oldest complete checkpoint that is there.
  uint64_t oldest;
  // The newest; 0 if there is none.
  uint64_t complete;
  // Bytes that the part of a process may have.
  uint64_t bytes;
  // How many checkpoints have room: the one that is being saved, and so many complete ones.
  uint32_t kept;
  // How many processes save.
  uint32_t processes;
} verbena_checkpoints;

// How far a process is.
typedef struct verbena_checkpoint_process {
  // Whether it has joined in this era.
  bool has_joined;
  // Which checkpoint it saved last in this era; 0 if it has saved none.
  uint64_t saved;
} verbena_checkpoint_process;

// A field of a request's or an answer's head.
typedef struct verbena_field {
  // Its name, in any case.
  const char *name;
  // Its value.
  const char *value;
} verbena_field;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Writes why this thread's last call that failed did so into `buffer`, cut to `size` bytes with the null byte at the end. A call that succeeds leaves
// the words as they are.
//
// \return how many bytes they have without the null byte, whatever was written; as snprintf(3). So `verbena_last_error(NULL, 0)` measures them.
//
// The caller sees to it:
// `buffer` is null, or `size` bytes can be written there.
size_t verbena_last_error(char *buffer,
                          size_t size);

// The version of this library, as "0.1.0". For ever valid.
const char *verbena_version(void);

// Connects to the helper of this machine. `path` is its socket (it ends in ".sock"), or the directory of one that is called local.sock; NULL: the user's
// own, where `verbena node` makes it if it is told nothing else. Waits `timeout_ms` at most. `*locks` is for verbena_close, and NULL after an error.
//
// The caller sees to it:
// `path` is null or ends with a null byte; `locks` is null or can be written.
enum verbena_result verbena_connect(const char *path,
                                    uint32_t timeout_ms,
                                    struct verbena_locks **locks);

// Closes a connection: all that it holds is released, and the pointer is of no use any more. NULL is nothing, nor are the locks of a verbena_memory.
//
// The caller sees to it:
// `locks` is null, or of verbena_connect and not closed yet; nobody is in a call with it.
void verbena_close(struct verbena_locks *locks);

// Waits for a lock, `timeout_ms` at most while the helper runs (one that is stopped is waited for up to five seconds more): 0 takes it only if it is free, VERBENA_NO_LIMIT waits as long as it takes. `name` is any 1 to
// VERBENA_MAX_NAME_BYTES bytes, `mode` VERBENA_SHARED or VERBENA_EXCLUSIVE. After an error `*hold` is none. A lock that this connection holds it gets once
// more at once, with the same token; it is free when all its holds of it are released.
//
// The caller sees to it:
// `locks` is null, or of verbena_connect and not closed; `name` is null or `length` bytes; `hold` is null or can be written.
enum verbena_result verbena_acquire(struct verbena_locks *locks,
                                    const void *name,
                                    size_t length,
                                    int mode,
                                    int64_t timeout_ms,
                                    struct verbena_hold *hold);

// Releases a lock. VERBENA_LOST says that it was not held to the end. Unless it says VERBENA_NO_ANSWER, VERBENA_BUSY or VERBENA_FORKED the hold is over.
//
// The caller sees to it:
// `locks` is null, or of verbena_connect and not closed; `hold` is null or can be read.
enum verbena_result verbena_release(struct verbena_locks *locks,
                                    const struct verbena_hold *hold);

// Lets others that share it hold the lock as well, from now on. The token is another one afterwards; nobody held the lock alone in between. Not back: for
// that it is released and acquired again.
//
// The caller sees to it:
// As for verbena_release.
enum verbena_result verbena_share(struct verbena_locks *locks,
                                  const struct verbena_hold *hold);

// Makes a lock's home forget it, for a name that will not be used again; `name` as for verbena_acquire. VERBENA_IN_USE says that somebody holds it or waits
// for it, verbena_last_error who, and nothing has changed. `*was_known` says whether its home knew it, if it is not NULL; false after an error.
//
// The caller sees to it:
// `locks` is null, or of verbena_connect and not closed; `name` is null or `length` bytes; `was_known` is null or can be written.
enum verbena_result verbena_lock_remove(struct verbena_locks *locks,
                                        const void *name,
                                        size_t length,
                                        bool *was_known);

// Whether the lock is still held, now. Asks nobody and does not wait: three loads and a look at the clock. False as soon as anybody else could have it,
// and for what is no hold of this connection.
//
// The caller sees to it:
// As for verbena_release.
bool verbena_is_held(const struct verbena_locks *locks,
                     const struct verbena_hold *hold);

// Waits until the lock is no longer held, `timeout_ms` at most: VERBENA_NO_LIMIT waits as long as it takes. Says whether that is so, a few milliseconds after it is, which
// nobody has to be there to tell; true at once for what is no hold of this connection, and when another thread releases it. For a thread of its own, beside one
// that works under the lock: it keeps nobody from using the connection.
//
// The caller sees to it:
// As for verbena_release; and nobody closes `locks` meanwhile.
bool verbena_wait_lost(const struct verbena_locks *locks,
                       const struct verbena_hold *hold,
                       int64_t timeout_ms);

// The fencing token: larger than those of all who held the lock alone before. A store that refuses a token smaller than one it has seen is safe from
// those who lost the lock and do not know it yet. 0 for what is no hold of this connection.
//
// The caller sees to it:
// As for verbena_release.
uint64_t verbena_token(const struct verbena_locks *locks,
                       const struct verbena_hold *hold);

// VERBENA_SHARED or VERBENA_EXCLUSIVE; 0 for what is no hold of this connection.
//
// The caller sees to it:
// As for verbena_release.
int verbena_mode_of(const struct verbena_locks *locks, const struct verbena_hold *hold);

// How long the lock is held if the node's lease is not renewed from now on, nanoseconds. It is renewed all the time, so this is what is left if the
// helper or the network stops. 0 for what is not held.
//
// The caller sees to it:
// As for verbena_release.
uint64_t verbena_good_for_ns(const struct verbena_locks *locks,
                             const struct verbena_hold *hold);

// The moment at which the node's lease ends if it is not renewed, nanoseconds of CLOCK_BOOTTIME: all that is held by this connection is held until then.
// 0 for NULL.
//
// The caller sees to it:
// `locks` is null, or of verbena_connect and not closed.
uint64_t verbena_held_until_ns(const struct verbena_locks *locks);

// Connects to the helper of this machine; `path` as for verbena_connect. Waits `timeout_ms` at most, and so does each call with the connection, but for
// verbena_memory_lock (and a second more, for what became of it). `*memory` is for verbena_memory_close, and NULL after an error.
//
// The caller sees to it:
// `path` is null or ends with a null byte; `memory` is null or can be written.
enum verbena_result verbena_memory_connect(const char *path,
                                           uint32_t timeout_ms,
                                           struct verbena_memory **memory);

// Closes a connection: the locks that it holds are released, and the pointer is of no use any more. NULL is nothing.
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed yet; nobody is in a call with it or its locks.
void verbena_memory_close(struct verbena_memory *memory);

// The locks of this connection, those of segments among them: for verbena_is_held and all that takes a verbena_locks. They are closed with it, not before.
// NULL for NULL.
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed.
struct verbena_locks *verbena_memory_locks(struct verbena_memory *memory);

// Makes a segment of `bytes` zeros, 1 to 16 MiB. `name`: up to VERBENA_MAX_SEGMENT_NAME_BYTES of UTF-8, or NULL for none. `coherence`: "null", "read",
// "write", "strict", "version", "delta(4)", "temporal(20ms)"; NULL: "strict". `writers`: nodes that can fill a slot at a time, 0 for 3. `copies`: nodes that hold it, 1 to 4, 0 for 1: it is lost when all of them are. `placement`:
// "most-free", "local", "spread" or a node's name; NULL: "most-free". After an error `*segment` is none. It stays until it is released or its home ends.
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed; the three texts are null or end with a null byte; `segment` is null or can be written.
enum verbena_result verbena_memory_allocate(struct verbena_memory *memory,
                                            const char *name,
                                            uint64_t bytes,
                                            const char *coherence,
                                            uint32_t writers,
                                            uint32_t copies,
                                            const char *placement,
                                            struct verbena_segment *segment);

// The segment of this name. After an error `*segment` is none.
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed; `name` is null or ends with a null byte; `segment` is null or can be written.
enum verbena_result verbena_memory_find(struct verbena_memory *memory,
                                        const char *name,
                                        struct verbena_segment *segment);

// Gives up a segment: its memory and its name are free. For one whose home is gone there is verbena_memory_release_name.
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed; `segment` is null or can be read.
enum verbena_result verbena_memory_release(struct verbena_memory *memory,
                                           const struct verbena_segment *segment);

// Gives up the segment of this name. One whose home is gone (VERBENA_GONE) gives up its name.
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed; `name` is null or ends with a null byte.
enum verbena_result verbena_memory_release_name(struct verbena_memory *memory,
                                                const char *name);

// Copies `length` bytes of the value from `offset` on into `buffer`: all of one version (but for `null`). `*version` and `*stamp_ns` are the value's, if
// they are not NULL. After an error the buffer is as it was.
//
// The caller sees to it:
// As for verbena_memory_release; `buffer` is null, or `length` bytes can be written there; `version` and `stamp_ns` are null or can be written.
enum verbena_result verbena_memory_get(struct verbena_memory *memory,
                                       const struct verbena_segment *segment,
                                       uint64_t offset,
                                       void *buffer,
                                       size_t length,
                                       uint64_t *version,
                                       uint64_t *stamp_ns);

// Puts `length` bytes in the place of those from `offset` on. With `over` it replaces the value of version `*over` and no other, which a segment that is
// coherent by "version" demands. `*version` is the new version, or after VERBENA_CONFLICT the one that there is, if it is not NULL; it may be `over`.
//
// The caller sees to it:
// As for verbena_memory_release; `bytes` is null or `length` bytes; `over` is null or can be read, `version` null or written.
enum verbena_result verbena_memory_put(struct verbena_memory *memory,
                                       const struct verbena_segment *segment,
                                       uint64_t offset,
                                       const void *bytes,
                                       size_t length,
                                       const uint64_t *over,
                                       uint64_t *version);

// What is known of a segment, and how old its value is. After an error `*info` is as it was.
//
// The caller sees to it:
// As for verbena_memory_release; `info` is null or can be written.
enum verbena_result verbena_memory_stat(struct verbena_memory *memory,
                                        const struct verbena_segment *segment,
                                        struct verbena_segment_info *info);

// Writes the segments whose names begin with `prefix` (NULL or "": all, those without a name too) to `infos`, `capacity` at most, in the order of their
// homes and numbers. `*count` is how many there are, also if that is more; `*silent` is how many homes did not answer, whose segments are not among them. With
// capacity 0 it counts, and `infos` may be NULL.
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed; `prefix` is null or ends with a null byte; `capacity` infos can be written; `count` and
// `silent` are null or can be written.
enum verbena_result verbena_memory_list(struct verbena_memory *memory,
                                        const char *prefix,
                                        struct verbena_segment_info *infos,
                                        size_t capacity,
                                        size_t *count,
                                        size_t *silent);

// Waits for a segment's lock, as verbena_acquire for a lock by name. It keeps out whoever asks for it as well, and nobody else: gets and puts do not look at
// it. The hold is one of verbena_memory_locks, for verbena_is_held, verbena_token and the like. Another user's segment is VERBENA_NOT_YOURS.
//
// The caller sees to it:
// As for verbena_memory_release; `hold` is null or can be written.
enum verbena_result verbena_memory_lock(struct verbena_memory *memory,
                                        const struct verbena_segment *segment,
                                        int mode,
                                        int64_t timeout_ms,
                                        struct verbena_hold *hold);

// Releases it when everything that this connection has put has arrived, or never will. Results as of verbena_release.
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed; `hold` is null or can be read.
enum verbena_result verbena_memory_unlock(struct verbena_memory *memory,
                                          const struct verbena_hold *hold);

// Opens a window onto a segment's newest value, without a copy. VERBENA_ELSEWHERE: its home is another node, the fabric's memory is of another kind, or the user is neither the
// one that runs the node nor root; verbena_memory_get reads it then. `*window` is for verbena_window_close, and NULL after an error.
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed; `segment` is null or can be read; `window` is null or can be written.
enum verbena_result verbena_memory_window(struct verbena_memory *memory,
                                          const struct verbena_segment *segment,
                                          struct verbena_window **window);

// The bytes of the value, verbena_window_bytes of them, valid until the window is closed or moved. They may be written over while they are read: after some more puts a
// later value is there. So what was read counts if verbena_window_holds says so after that. NULL for NULL.
//
// The caller sees to it:
// `window` is null, or of verbena_memory_window and not closed.
const void *verbena_window_data(const struct verbena_window *window);

// How many bytes the value has; 0 for NULL.
//
// The caller sees to it:
// As for verbena_window_data.
size_t verbena_window_bytes(const struct verbena_window *window);

// The version of the value, which grows by one with each put; 0 for NULL.
//
// The caller sees to it:
// As for verbena_window_data.
uint64_t verbena_window_version(const struct verbena_window *window);

// When it was put, nanoseconds since 1970 by its writer's clock; 0 if nothing was, for `null`, and for NULL.
//
// The caller sees to it:
// As for verbena_window_data.
uint64_t verbena_window_stamp_ns(const struct verbena_window *window);

// Whether all that was read through the window so far was this version, and the segment's newest value at a moment after it was asked for. Nobody is asked. False for NULL.
//
// The caller sees to it:
// As for verbena_window_data.
bool verbena_window_holds(const struct verbena_window *window);

// Whether nothing newer was put so far. Nobody is asked. False for NULL.
//
// The caller sees to it:
// As for verbena_window_data.
bool verbena_window_is_newest(const struct verbena_window *window);

// Moves the window to the newest value. False where that is not there any more: it stays as it is then, and verbena_memory_window opens another, or says what became of the segment.
//
// The caller sees to it:
// As for verbena_window_data; nobody else uses it meanwhile.
bool verbena_window_newest(struct verbena_window *window);

// Closes it. NULL is nothing.
//
// The caller sees to it:
// `window` is null, or of verbena_memory_window and not closed yet; nobody uses it or its bytes.
void verbena_window_close(struct verbena_window *window);

// Makes room for checkpoints of this name, of `processes` processes with parts of up to `bytes` bytes. `kept`: how many have room, 2 to 64, 0 for 2: the one that is being saved, and
// so many complete ones. `copies`: nodes that hold each part, 1 to 4, 0 for 1. `placement` as for verbena_memory_allocate; NULL: "spread".
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed; the two texts are null or end with a null byte.
enum verbena_result verbena_checkpoints_make(struct verbena_memory *memory,
                                             const char *name,
                                             uint32_t processes,
                                             uint64_t bytes,
                                             uint32_t kept,
                                             uint32_t copies,
                                             const char *placement);

// A process begins, or begins again: it is to go on from checkpoint `joined->number`, of which its part is copied into `part` if that has `capacity` bytes enough. `*length` is how
// many it has, also if that is more: verbena_checkpoints_part reads it then. 0 bytes where there is no checkpoint. A process that joins twice in an era has crashed, and all go back
// to that checkpoint. After an error `*joined` is zeros.
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed; `name` is null or ends with a null byte; `joined` is null or can be written; `part` is null, or `capacity` bytes can
// be written there; `length` is null or can be written.
enum verbena_result verbena_checkpoints_join(struct verbena_memory *memory,
                                             const char *name,
                                             uint32_t process,
                                             struct verbena_joined *joined,
                                             void *part,
                                             size_t capacity,
                                             size_t *length);

// Saves a process's part of checkpoint `number`, the next after the newest complete one, in the era that it joined. `*complete` is the newest complete one then, if it is not NULL.
// VERBENA_ROLLED_BACK: another process began again; this one is to join again, and what it did since the checkpoint that it then gets did not happen.
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed; `name` is null or ends with a null byte; `part` is null or `length` bytes; `complete` is null or can be written.
enum verbena_result verbena_checkpoints_save(struct verbena_memory *memory,
                                             const char *name,
                                             uint32_t process,
                                             uint64_t era,
                                             uint64_t number,
                                             const void *part,
                                             size_t length,
                                             uint64_t *complete);

// Waits until all have saved a checkpoint, `timeout_ms` at most: VERBENA_NOT_IN_TIME if it is not complete by then. VERBENA_ROLLED_BACK as for verbena_checkpoints_save.
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed; `name` is null or ends with a null byte.
enum verbena_result verbena_checkpoints_wait(struct verbena_memory *memory,
                                             const char *name,
                                             uint64_t era,
                                             uint64_t number,
                                             uint32_t timeout_ms);

// Copies a process's part of a complete checkpoint into `part` if that has `capacity` bytes enough, for who only looks; `*length` as for verbena_checkpoints_join.
// VERBENA_NOT_FOUND: it is not complete, or not there any more.
//
// The caller sees to it:
// As for verbena_checkpoints_join.
enum verbena_result verbena_checkpoints_part(struct verbena_memory *memory,
                                             const char *name,
                                             uint32_t process,
                                             uint64_t number,
                                             void *part,
                                             size_t capacity,
                                             size_t *length);

// How the saving of this name stands; how far each process is goes to `processes`, `capacity` at most, which may be 0. After an error `*checkpoints` is as it was.
//
// The caller sees to it:
// `memory` is null, or of verbena_memory_connect and not closed; `name` is null or ends with a null byte; `checkpoints` is null or can be written; so can `capacity` processes.
enum verbena_result verbena_checkpoints_show(struct verbena_memory *memory,
                                             const char *name,
                                             struct verbena_checkpoints *checkpoints,
                                             struct verbena_checkpoint_process *processes,
                                             size_t capacity);

// Makes all processes begin again from an older complete checkpoint: each is told by its next save.
//
// The caller sees to it:
// As for verbena_checkpoints_wait.
enum verbena_result verbena_checkpoints_roll_back(struct verbena_memory *memory,
                                                  const char *name,
                                                  uint64_t number);

// Releases the segments of all checkpoints of this name. If that ends early it can be done again.
//
// The caller sees to it:
// As for verbena_checkpoints_wait.
enum verbena_result verbena_checkpoints_remove(struct verbena_memory *memory, const char *name);

// Connects to the helper of this machine; `path` as for verbena_connect. What is asked about pages waits `timeout_ms` at most, each time. `*pages` is for
// verbena_pages_close, and NULL after an error.
//
// The caller sees to it:
// `path` is null or ends with a null byte; `pages` is null or can be written.
enum verbena_result verbena_pages_connect(const char *path,
                                          uint32_t timeout_ms,
                                          struct verbena_pages **pages);

// Closes a connection. NULL is nothing.
//
// The caller sees to it:
// `pages` is null, or of verbena_pages_connect and not closed yet; nobody is in a call with it.
void verbena_pages_close(struct verbena_pages *pages);

// A request's head: its method, its target (path and query, as the client sent them), `count` fields, whether it has a body, and which requests write there.
// VERBENA_BAD_ARGUMENT says that it is not fit for a cache: pass it on. `*fill` is for verbena_fill_free, and NULL after an error.
//
// The caller sees to it:
// The texts are null or end with a null byte, also those of the `count` fields, which can be read; `fill` is null or can be written.
enum verbena_result verbena_fill_new(const char *method,
                                     const char *target,
                                     const struct verbena_field *fields,
                                     size_t count,
                                     bool has_body,
                                     int writes,
                                     struct verbena_fill **fill);

// Forgets a request. NULL is nothing.
//
// The caller sees to it:
// `fill` is null, or of verbena_fill_new and not freed yet; nobody is in a call with it.
void verbena_fill_free(struct verbena_fill *fill);

// What is to be done with it; VERBENA_PASS for NULL.
//
// The caller sees to it:
// `fill` is null, or of verbena_fill_new and not freed.
enum verbena_intent verbena_fill_intent(const struct verbena_fill *fill);

// What tells its page from others, beside its address: a copy of another key is another page's. 32 hexadecimal digits, as snprintf(3) would write them.
//
// The caller sees to it:
// `fill` is null, or of verbena_fill_new and not freed; `buffer` is null, or `size` bytes can be written there.
size_t verbena_fill_key(const struct verbena_fill *fill,
                        char *buffer,
                        size_t size);

// Reads the page's words, for which the request must have arrived: what it does not begin with cannot be stored. After an error use no copy, and the
// answer is not stored.
//
// The caller sees to it:
// `pages` is null, or of verbena_pages_connect and not closed; `fill` is null, or of verbena_fill_new and not freed, and nobody else uses it.
enum verbena_result verbena_fill_read(struct verbena_pages *pages,
                                      struct verbena_fill *fill);

// Whether a copy with this stamp is what the application could have answered when the words were read, and may be used for this request.
//
// The caller sees to it:
// `fill` is null, or of verbena_fill_new and not freed; `stamp` is null or ends with a null byte.
bool verbena_fill_is_current(const struct verbena_fill *fill,
                             const char *stamp);

// The head of its answer came: whether it may be stored, by what it says and by what it depends on. VERBENA_REFUSED: it must not, verbena_last_error says why.
// An answer that says by no field where its body ends must have been seen to end: give it "Transfer-Encoding: chunked".
//
// The caller sees to it:
// As for verbena_fill_read; the `count` fields can be read, and their texts end with a null byte.
enum verbena_result verbena_fill_answer(struct verbena_pages *pages,
                                        struct verbena_fill *fill,
                                        uint32_t status,
                                        const struct verbena_field *fields,
                                        size_t count);

// What its copy is stored under, for verbena_fill_is_current: text to be kept within the copy, never beside it. It counts only after verbena_fill_register.
// As snprintf(3); 0 bytes if there is none.
//
// The caller sees to it:
// As for verbena_fill_key.
size_t verbena_fill_stamp(const struct verbena_fill *fill,
                          char *buffer,
                          size_t size);

// The whole answer is here: asks the page's home whether it may be stored under its stamp. After any error it must not.
//
// The caller sees to it:
// As for verbena_fill_read.
enum verbena_result verbena_fill_register(struct verbena_pages *pages,
                                          struct verbena_fill *fill);

// Begins a write of what bears these `count` names; of everything, if there are none. Forward it after VERBENA_OK and not before; after any error forward
// nothing, and answer 503. `*update` is for verbena_update_end.
//
// The caller sees to it:
// `pages` is null, or of verbena_pages_connect and not closed; `names` can be read, and its texts end with a null byte; `update` is null or can be written.
enum verbena_result verbena_update_begin(struct verbena_pages *pages,
                                         const char *const *names,
                                         size_t count,
                                         uint64_t *update);

// Begins the write that this request is, as verbena_update_begin does: of everything, or where a relay sees the database of what is beside that.
//
// The caller sees to it:
// `pages` is null, or of verbena_pages_connect and not closed; `fill` is null, or of verbena_fill_new and not freed; `update` is null or can be written.
enum verbena_result verbena_update_begin_for(struct verbena_pages *pages,
                                             const struct verbena_fill *fill,
                                             uint64_t *update);

// Ends a write. Only after VERBENA_OK may its client have the end of the answer; close its connection otherwise.
//
// The caller sees to it:
// `pages` is null, or of verbena_pages_connect and not closed.
enum verbena_result verbena_update_end(struct verbena_pages *pages,
                                       uint64_t update,
                                       int outcome);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VERBENA_H */
