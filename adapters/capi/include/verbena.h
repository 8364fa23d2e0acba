/* Locks of the Verbena cluster, for C11 and C++.
 *
 * Made by `VERBENA_WRITE_EXPECTED=1 cargo test -p verbena-capi --test header`; do not edit. docs/CLIENTS.md says how to use it.
 *
 * A verbena_locks is a connection to the helper of this machine (`verbena node`); a verbena_hold is a lock that it holds. Functions that
 * return a verbena_result return VERBENA_OK, or say why not; verbena_last_error has the words. NULL is an error, not a crash.
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

// How a call went. `verbena_last_error` has the words.
typedef enum verbena_result {
  // It is done.
  VERBENA_OK = 0,
  // The lock was not free in time, or not free at all where the limit was 0. Nothing is held, and nothing is waited for.
  VERBENA_NOT_IN_TIME = 1,
  // The lock was held, and was lost before this call: others may have had it. The hold is over.
  VERBENA_LOST = 2,
  // The hold is none of this connection: it was released, is another one's, or was never given. Nothing was changed.
  VERBENA_NOT_HELD = 3,
  // The helper refuses, and says why: no room for another lock; a share of what is shared already; alone what this connection holds shared.
  VERBENA_REFUSED = 4,
  // No helper listens there: start one with `verbena node`.
  VERBENA_NO_HELPER = 5,
  // The connection has ended, and with it all that was held by it. Close it and connect again.
  VERBENA_DISCONNECTED = 6,
  // The helper did not answer in time. What was asked may have been done; close the connection if it matters.
  VERBENA_NO_ANSWER = 7,
  // A null pointer, a length, a mode or a time that cannot be. Nothing was done.
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
} verbena_result;

// How a lock is held.
typedef enum verbena_mode {
  // With others that hold it so.
  VERBENA_SHARED = 1,
  // Alone.
  VERBENA_EXCLUSIVE = 2,
} verbena_mode;

// A program's connection for locks, for one thread: what it holds it gets once more at once, so threads that are to exclude each other connect each for
// itself. What only looks can be called by any. When it is closed, or the program ends in whatever way, all that it holds is released.
typedef struct verbena_locks verbena_locks;

// What was acquired, to be copied as one likes: no memory is behind it. One of zeros is none.
typedef struct verbena_hold {
  // No two holds of a process have the same.
  uint64_t number;
} verbena_hold;

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

// Closes a connection: all that it holds is released, and the pointer is of no use any more. NULL is nothing.
//
// The caller sees to it:
// `locks` is null, or of verbena_connect and not closed yet; nobody is in a call with it.
void verbena_close(struct verbena_locks *locks);

// Waits for a lock, `timeout_ms` at most: 0 takes it only if it is free, VERBENA_NO_LIMIT waits as long as it takes. `name` is any 1 to
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

// Whether the lock is still held, now. Asks nobody and does not wait: three loads and a look at the clock. False as soon as anybody else could have it,
// and for what is no hold of this connection.
//
// The caller sees to it:
// As for verbena_release.
bool verbena_is_held(const struct verbena_locks *locks,
                     const struct verbena_hold *hold);

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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VERBENA_H */
