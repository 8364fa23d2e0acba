/* Words (B5): `[generation : 48 | writes in flight : 16]` in a file of shared memory that the brick maps to write, and clients to read.
 *
 * A slot is chosen by a hash of file, kind and chunk; files that share one cost each other misses. The brick holds a robust mutex in the same memory for
 * all its life, so the kernel marks it before it closes any socket of a dead brick (B11), and counts a beat for the case that it is stopped. Generations
 * begin with the number of the brick's starts, which is on disk before the first client sees it (B10).
 */

#include "bank.h"

#include <errno.h>
#include <stdatomic.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x3153444f57425656 /* "VVBWORDS1", little-endian */
#define SLOTS 65536
#define IN_FLIGHT 0xFFFF
#define GENERATION (1 << 16)
/* Of the 48 bits of a generation, the starts have the upper 20. */
#define START_SHIFT 44
#define BEAT_MS 200
#define BEAT_LIMIT_MS 2000
#define OWNER_DIED 0x40000000
#define OWNER 0x3FFFFFFF

struct memory {
    uint64_t magic, slots;
    _Atomic uint64_t beat;
    /* Even if it does not matter which: busy for ever once something could not be counted. */
    _Atomic uint64_t everything;
    pthread_mutex_t life;
    _Atomic uint64_t word[SLOTS];
};

struct words {
    struct memory *memory;
    /* At home it holds `life` and beats, at a client it watches the beat. */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool holds, ends;
    /* Client: a time before the beat that was seen last. 0: none was seen to change. */
    _Atomic uint64_t beat_after_ms;
};

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits for the next beat. The lock is held. */
static void pause_beat(struct words *words)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += BEAT_MS * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&words->changed, &words->lock, &until);
}

static void *live(void *argument)
{
    struct words *words = argument;
    pthread_mutex_lock(&words->memory->life);
    pthread_mutex_lock(&words->lock);
    words->holds = true;
    pthread_cond_broadcast(&words->changed);
    while (!words->ends) {
        atomic_fetch_add(&words->memory->beat, 1);
        pause_beat(words);
    }
    pthread_mutex_unlock(&words->lock);
    pthread_mutex_unlock(&words->memory->life);
    return NULL;
}

/* A client's: a beat that changed since the last look is younger than that look. A reader that looks only when it reads would take one that is
 * minutes old for a new one. */
static void *watch(void *argument)
{
    struct words *words = argument;
    uint64_t last_ms = now_ms(), last = atomic_load(&words->memory->beat);
    pthread_mutex_lock(&words->lock);
    while (!words->ends) {
        pause_beat(words);
        uint64_t began = now_ms(), beat = atomic_load(&words->memory->beat);
        if (beat != last)
            atomic_store(&words->beat_after_ms, last_ms);
        last = beat;
        last_ms = began;
    }
    pthread_mutex_unlock(&words->lock);
    return NULL;
}

/* One more start, durably. 0 if it cannot be kept. */
static uint64_t count_start(const char *path)
{
    uint64_t starts = 0;
    char text[32], next[4096], folder[4096];
    FILE *file = fopen(path, "re");
    if (file && (!fgets(text, sizeof text, file) || (starts = strtoull(text, NULL, 10)) == 0)) {
        fclose(file);
        return 0;
    }
    if (file)
        fclose(file);
    else if (errno != ENOENT)
        return 0;
    starts = without("B10") ? 1 : starts + 1;
    if (starts >> 20 || snprintf(next, sizeof next, "%s.new", path) >= (int)sizeof next)
        return 0;
    int fd = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), length = snprintf(text, sizeof text, "%llu\n", (unsigned long long)starts);
    if (fd < 0)
        return 0;
    bool kept = write(fd, text, length) == length && fsync(fd) == 0;
    kept = close(fd) == 0 && kept && rename(next, path) == 0;
    strcpy(folder, path);
    char *slash = strrchr(folder, '/');
    if (!kept || !slash)
        return 0;
    slash[1] = 0;
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    kept = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return kept ? starts : 0;
}

struct words *words_create(const char *path, const char *starts, const char **why)
{
    char next[4096];
    struct words *words = NULL;
    *why = "the count of starts cannot be kept on disk";
    uint64_t start = count_start(starts);
    if (!start)
        return NULL;
    *why = "the file of words cannot be made";
    if (snprintf(next, sizeof next, "%s.new", path) >= (int)sizeof next)
        return NULL;
    unlink(next);
    int fd = open(next, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return NULL;
    struct memory *memory = MAP_FAILED;
    if (ftruncate(fd, sizeof *memory) == 0)
        memory = mmap(NULL, sizeof *memory, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    words = calloc(1, sizeof *words);
    if (memory == MAP_FAILED || !words)
        goto failed;
    for (int at = 0; at < SLOTS; at++)
        atomic_init(&memory->word[at], start << START_SHIFT);
    atomic_init(&memory->everything, start << START_SHIFT);
    memory->slots = SLOTS;
    pthread_mutexattr_t robust;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&memory->life, &robust);
    pthread_mutexattr_destroy(&robust);
    words->memory = memory;
    pthread_mutex_init(&words->lock, NULL);
    pthread_cond_init(&words->changed, NULL);
    if (gf_thread_create(&words->thread, NULL, live, words, "vbwords"))
        goto failed;
    pthread_mutex_lock(&words->lock);
    while (!words->holds)
        pthread_cond_wait(&words->changed, &words->lock);
    pthread_mutex_unlock(&words->lock);
    memory->magic = MAGIC;
    if (rename(next, path) == 0)
        return words;
    words_close(words);
    return NULL;
failed:
    if (memory != MAP_FAILED)
        munmap(memory, sizeof *memory);
    unlink(next);
    free(words);
    return NULL;
}

struct words *words_open(const char *path)
{
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct memory *memory = MAP_FAILED;
    if (fstat(fd, &stat) == 0 && stat.st_size == sizeof *memory)
        memory = mmap(NULL, sizeof *memory, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    struct words *words = memory == MAP_FAILED || memory->magic != MAGIC ? NULL : calloc(1, sizeof *words);
    if (!words) {
        if (memory != MAP_FAILED)
            munmap(memory, sizeof *memory);
        return NULL;
    }
    words->memory = memory;
    pthread_mutex_init(&words->lock, NULL);
    pthread_cond_init(&words->changed, NULL);
    if (gf_thread_create(&words->thread, NULL, watch, words, "vbwatch") == 0)
        return words;
    munmap(memory, sizeof *memory);
    free(words);
    return NULL;
}

void words_close(struct words *words)
{
    if (!words)
        return;
    pthread_mutex_lock(&words->lock);
    words->ends = true;
    pthread_cond_broadcast(&words->changed);
    pthread_mutex_unlock(&words->lock);
    pthread_join(words->thread, NULL);
    munmap(words->memory, sizeof *words->memory);
    free(words);
}

bool words_alive(struct words *words)
{
    int owner = __atomic_load_n(&words->memory->life.__data.__lock, __ATOMIC_SEQ_CST);
    uint64_t after = atomic_load(&words->beat_after_ms);
    if (without("B11"))
        return true;
    return !(owner & OWNER_DIED) && (owner & OWNER) && after && now_ms() - after < BEAT_LIMIT_MS;
}

void words_add(struct word_set *set, const unsigned char *gfid, enum word kind, uint64_t chunk)
{
    static const unsigned char none[16];
    static const uint64_t key[2] = {0x766572, 0x62656e61};
    unsigned char all[25];
    uint64_t hash[2];
    if (!gfid || !memcmp(gfid, none, 16) || set->count == WORDS_AT_ONCE) {
        set->everything = true;
        return;
    }
    memcpy(all, gfid, 16);
    memcpy(all + 16, &chunk, 8);
    all[24] = kind;
    siphash(key, all, sizeof all, hash);
    set->slot[set->count++] = hash[0] % SLOTS;
}

void words_add_range(struct word_set *set, const unsigned char *gfid, uint64_t offset, uint64_t length)
{
    uint64_t first = offset >> CHUNK_SHIFT, last = (offset + (length ? length - 1 : 0)) >> CHUNK_SHIFT;
    if (last - first >= (uint64_t)(WORDS_AT_ONCE - set->count)) {
        words_add(set, gfid, WORD_FILE, 0);
        return;
    }
    for (uint64_t chunk = first; chunk <= last; chunk++)
        words_add(set, gfid, WORD_CHUNK, chunk);
}

static void begin(_Atomic uint64_t *everything, _Atomic uint64_t *word)
{
    uint64_t now = atomic_load(word), next;
    do {
        if ((now & IN_FLIGHT) == IN_FLIGHT) {
            /* It cannot be counted: nothing is believed until the brick starts anew. */
            atomic_fetch_or(everything, IN_FLIGHT);
            return;
        }
        next = now + GENERATION + 1;
        /* Generations of this start are used up. */
        if (next >> START_SHIFT != now >> START_SHIFT)
            atomic_fetch_or(everything, IN_FLIGHT);
    } while (!atomic_compare_exchange_weak(word, &now, next));
}

static void end(_Atomic uint64_t *word)
{
    uint64_t now = atomic_load(word);
    while (!atomic_compare_exchange_weak(word, &now, now + GENERATION - ((now & IN_FLIGHT) ? 1 : 0)))
        ;
}

void words_begin(struct words *words, const struct word_set *set)
{
    struct memory *memory = words->memory;
    if (without("B6"))
        return;
    if (set->everything)
        begin(&memory->everything, &memory->everything);
    for (int at = 0; at < set->count; at++)
        begin(&memory->everything, &memory->word[set->slot[at]]);
}

void words_end(struct words *words, const struct word_set *set)
{
    if (without("B6"))
        return;
    for (int at = 0; at < set->count; at++)
        end(&words->memory->word[set->slot[at]]);
    /* Busy for ever is not counted down. */
    if (set->everything && (atomic_load(&words->memory->everything) & IN_FLIGHT) != IN_FLIGHT)
        end(&words->memory->everything);
}

bool words_look(struct words *words, struct word_set *set)
{
    bool busy = false;
    set->everything_seen = atomic_load(&words->memory->everything);
    for (int at = 0; at < set->count; at++) {
        set->seen[at] = atomic_load(&words->memory->word[set->slot[at]]);
        busy = busy || (set->seen[at] & IN_FLIGHT);
    }
    return !busy && !(set->everything_seen & IN_FLIGHT) && !set->everything;
}

bool words_same(struct words *words, const struct word_set *set)
{
    struct word_set again = *set;
    if (without("B8"))
        return true;
    return words_look(words, &again) && again.everything_seen == set->everything_seen && !memcmp(again.seen, set->seen, set->count * sizeof *set->seen);
}
