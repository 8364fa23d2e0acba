/* What CMCache (cmcache.c, in clients) and SMCache (smcache.c, in bricks) share: daemons, items, workers and words.
 *
 *   program     cmcache (client)       daemons          smcache (brick)       file system
 *      | read ------> |                   |                   |                  |
 *      |              |-- mg, blocks ---->|                   |                  |
 *      |<-- all hit --|                   |                   |                  |
 *      |              |-- a miss: the read, widened to blocks |----------------->|
 *      |              |                   |<---- ms, blocks --|<-----------------|
 *      |<-------------|<--------------------------------------|                  |
 *
 * Scheme `imca` names items by path, as the paper does, and is not coherent. Scheme `strong` names them by gfid and by the generations of words that
 * the brick alone writes and clients read in shared memory (words.c). A fop never waits for a daemon: it becomes a job of a worker (workers.c).
 */
#ifndef VERBENA_BANK_H
#define VERBENA_BANK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <glusterfs/call-stub.h>
#include <glusterfs/defaults.h>
#include <glusterfs/logging.h>
#include <glusterfs/xlator.h>

#define BANK_DAEMONS 64
/* A daemon refuses longer names. */
#define BANK_KEY 250
/* Blocks that one read may ask for; a longer read goes to the brick at once. */
#define BANK_BATCH 1024

/* ---- Daemons (daemons.c). ---- */

enum placement { PLACEMENT_CRC32, PLACEMENT_MODULO };

struct daemons {
    int count;
    enum placement placement;
    int deadline_ms;
    uint64_t secret[2];
    char *address[BANK_DAEMONS];
};

/* An item that is asked for, stored or deleted. `key` has no blanks; `bytes` belongs to the caller, or, after daemons_get, to be freed by it. */
struct item {
    char key[BANK_KEY + 1];
    uint64_t block;
    char *bytes;
    size_t length;
};

/* The connections of one worker. */
struct links {
    int fd[BANK_DAEMONS];
    uint64_t rest_until_ms[BANK_DAEMONS];
};

/* `HOST:PORT,HOST:PORT` or paths of sockets, as `verbena bank up` prints them without the scheme. */
int daemons_parse(struct daemons *daemons, const char *list);
void daemons_free(struct daemons *daemons);
void links_init(struct links *links);
void links_close(struct links *links);
/* Asks for all of them together. True if each was there and proved itself. */
bool daemons_get(const struct daemons *daemons, struct links *links, struct item *items, int count);
void daemons_set(const struct daemons *daemons, struct links *links, const struct item *items, int count);
void daemons_delete(const struct daemons *daemons, struct links *links, const struct item *items, int count);
void items_free(struct item *items, int count);
/* SipHash-2-4 of 128 bits. */
void siphash(const uint64_t key[2], const void *bytes, size_t length, uint64_t out[2]);

/* ---- Workers (workers.c). ---- */

struct workers;
struct worker {
    struct workers *all;
    struct links links;
};
typedef void (*job_function)(struct worker *worker, void *job);

struct workers *workers_start(xlator_t *this, int count, int longest);
/* False if the queue is full: the job was not taken. */
bool workers_try(struct workers *workers, job_function function, void *job);
/* Waits for room; on a worker's own thread the job runs at once. */
void workers_give(struct workers *workers, job_function function, void *job);
/* Waits for all jobs, then ends. */
void workers_end(struct workers *workers);

/* ---- Words (words.c). ---- */

struct words;
enum word { WORD_ATTRIBUTES = 1, WORD_FILE, WORD_CHUNK };
#define CHUNK_SHIFT 20
/* Words that one write moves one by one; a longer one moves the file's. */
#define WORDS_AT_ONCE 20

struct word_set {
    int count;
    bool everything;
    uint32_t slot[WORDS_AT_ONCE];
    uint64_t seen[WORDS_AT_ONCE];
    uint64_t everything_seen;
};

/* The brick makes them anew at each start: `path` is replaced, `starts` counts on disk. */
struct words *words_create(const char *path, const char *starts, const char **why);
/* A client maps them to read. */
struct words *words_open(const char *path);
void words_close(struct words *words);
/* Whether the brick that writes them lives, and its beat is young. Clients ask before each use. */
bool words_alive(struct words *words);
void words_add(struct word_set *set, const unsigned char *gfid, enum word kind, uint64_t chunk);
void words_add_range(struct word_set *set, const unsigned char *gfid, uint64_t offset, uint64_t length);
void words_begin(struct words *words, const struct word_set *set);
void words_end(struct words *words, const struct word_set *set);
/* Notes the generations. False if one is busy. */
bool words_look(struct words *words, struct word_set *set);
/* Whether none moved since. */
bool words_same(struct words *words, const struct word_set *set);

/* ---- Items' names (names.c). ---- */

bool name_path_stat(struct item *item, const char *path);
bool name_path_block(struct item *item, const char *path, uint64_t block, uint64_t block_size);
void name_stat(struct item *item, const uint64_t secret[2], const unsigned char *gfid, const uint64_t generations[2]);
void name_block(struct item *item, const uint64_t secret[2], const unsigned char *gfid, const uint64_t generations[3], uint64_t block, uint64_t block_size);

#ifdef VERBENA_SWITCHES
/* Tests switch rules off: VERBENA_WITHOUT=B6,B8. */
bool without(const char *rule);
#else
#define without(rule) false
#endif

#endif
