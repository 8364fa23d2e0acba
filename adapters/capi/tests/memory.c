/* Every call for memory, what a program can do wrong with it, and what it hears. Arguments: the sockets of nodes a and b of one cluster. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

enum { LONG = 5000003 };

static const verbena_segment NONE = {0};

static verbena_segment made(verbena_memory *memory, const char *name, uint64_t bytes, const char *coherence,
                            const char *placement) {
    verbena_segment segment;
    expect(verbena_memory_allocate(memory, name, bytes, coherence, 0, 0, placement, &segment), VERBENA_OK);
    return segment;
}

static void null_and_nonsense(verbena_memory *memory) {
    verbena_memory *none = memory;
    verbena_segment segment, x = made(memory, "x", 100, NULL, "a");
    verbena_segment_info info;
    verbena_hold hold;
    uint64_t word = 0;
    char name[VERBENA_MAX_SEGMENT_NAME_BYTES + 2] = {0};
    memset(name, 'n', sizeof name - 1);
    expect(verbena_memory_connect(NULL, 1000, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_connect("", 1000, &none), VERBENA_BAD_ARGUMENT);
    expect(none == NULL, 1);
    expect(verbena_memory_connect("/nowhere/at/all.sock", 1000, &none), VERBENA_NO_HELPER);
    expect(verbena_memory_locks(NULL) == NULL, 1);
    verbena_memory_close(NULL);
    /* Its locks are closed with it and not before. */
    verbena_close(verbena_memory_locks(memory));
    expect(verbena_memory_allocate(NULL, NULL, 8, NULL, 0, 0, NULL, &segment), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_allocate(memory, NULL, 8, NULL, 0, 0, NULL, NULL), VERBENA_BAD_ARGUMENT);
    segment = x;
    expect(verbena_memory_allocate(memory, "x", 8, NULL, 0, 0, NULL, &segment), VERBENA_EXISTS);
    expect(memcmp(&segment, &NONE, sizeof NONE), 0);
    expect(verbena_memory_allocate(memory, NULL, 0, NULL, 0, 0, NULL, &segment), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_allocate(memory, NULL, (16 << 20) + 1, NULL, 0, 0, NULL, &segment), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_allocate(memory, NULL, 16 << 20, NULL, 8, 0, NULL, &segment), VERBENA_NO_ROOM);
    expect(says("are too many"), 1);
    expect(verbena_memory_allocate(memory, NULL, 8, "string", 0, 0, NULL, &segment), VERBENA_BAD_ARGUMENT);
    expect(says("\"string\" is no coherence"), 1);
    expect(verbena_memory_allocate(memory, NULL, 8, "\xff", 0, 0, NULL, &segment), VERBENA_BAD_ARGUMENT);
    expect(says("the coherence is no UTF-8"), 1);
    expect(verbena_memory_allocate(memory, NULL, 8, NULL, 256, 0, NULL, &segment), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_allocate(memory, NULL, 8, NULL, 0, 0, "nobody", &segment), VERBENA_BAD_ARGUMENT);
    expect(says("no node nobody"), 1);
    expect(verbena_memory_allocate(memory, "", 8, NULL, 0, 0, NULL, &segment), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_allocate(memory, "two\nlines", 8, NULL, 0, 0, NULL, &segment), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_allocate(memory, name, 8, NULL, 0, 0, NULL, &segment), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_find(NULL, "x", &segment), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_find(memory, NULL, &segment), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_find(memory, "x", NULL), VERBENA_BAD_ARGUMENT);
    segment = x;
    expect(verbena_memory_find(memory, "y", &segment), VERBENA_NOT_FOUND);
    expect(memcmp(&segment, &NONE, sizeof NONE), 0);
    expect(verbena_memory_get(NULL, &x, 0, &word, 8, NULL, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_get(memory, NULL, 0, &word, 8, NULL, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_get(memory, &NONE, 0, &word, 8, NULL, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_get(memory, &x, 0, NULL, 8, NULL, NULL), VERBENA_BAD_ARGUMENT);
    word = 77;
    expect(verbena_memory_get(memory, &x, 93, &word, 8, NULL, NULL), VERBENA_OUT_OF_RANGE);
    expect(verbena_memory_get(memory, &x, 0, &word, (size_t)-1, NULL, NULL), VERBENA_OUT_OF_RANGE);
    expect(verbena_memory_get(memory, &x, UINT64_MAX, &word, 8, NULL, NULL), VERBENA_OUT_OF_RANGE);
    expect(verbena_memory_get(memory, &x, 0, &word, 0, NULL, NULL), VERBENA_OUT_OF_RANGE);
    expect(word, 77);
    expect(verbena_memory_put(NULL, &x, 0, &word, 8, NULL, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_put(memory, NULL, 0, &word, 8, NULL, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_put(memory, &x, 0, NULL, 8, NULL, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_put(memory, &x, 0, &word, (size_t)-1, NULL, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_put(memory, &x, 0, &word, 0, NULL, NULL), VERBENA_OUT_OF_RANGE);
    expect(verbena_memory_put(memory, &x, 93, &word, 8, NULL, NULL), VERBENA_OUT_OF_RANGE);
    expect(verbena_memory_stat(NULL, &x, &info), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_stat(memory, NULL, &info), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_stat(memory, &x, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_list(NULL, NULL, &info, 1, NULL, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_list(memory, NULL, NULL, 1, NULL, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_list(memory, "\xff", &info, 1, NULL, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_list(memory, NULL, NULL, 0, NULL, NULL), VERBENA_OK);
    expect(verbena_memory_lock(NULL, &x, VERBENA_SHARED, 0, &hold), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_lock(memory, NULL, VERBENA_SHARED, 0, &hold), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_lock(memory, &x, VERBENA_SHARED, 0, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_lock(memory, &x, 3, 0, &hold), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_lock(memory, &x, VERBENA_SHARED, -2, &hold), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_unlock(NULL, &hold), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_unlock(memory, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_unlock(memory, &hold), VERBENA_NOT_HELD);
    expect(verbena_memory_release(NULL, &x), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_release(memory, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_release_name(NULL, "x"), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_release_name(memory, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_release(memory, &x), VERBENA_OK);
    expect(verbena_memory_release(memory, &x), VERBENA_RELEASED);
    expect(verbena_memory_release_name(memory, "x"), VERBENA_NOT_FOUND);
    expect(verbena_memory_get(memory, &x, 0, &word, 8, NULL, NULL), VERBENA_RELEASED);
    expect(verbena_memory_lock(memory, &x, VERBENA_SHARED, 0, &hold), VERBENA_RELEASED);
    /* The longest name that can be. */
    name[VERBENA_MAX_SEGMENT_NAME_BYTES] = 0;
    x = made(memory, name, 8, "temporal(18446744073709551615us)", NULL);
    expect(verbena_memory_stat(memory, &x, &info), VERBENA_OK);
    expect(strcmp(info.name, name) || strcmp(info.coherence, "temporal(18446744073709551615us)"), 0);
    expect(verbena_memory_release(memory, &x), VERBENA_OK);
}

static void values(verbena_memory *here, verbena_memory *there) {
    static unsigned char in[LONG], out[LONG];
    verbena_segment big = made(here, "big", LONG, "read", "b"), found;
    uint64_t first, second, stamp_ns;
    for (size_t at = 0; at < LONG; at++)
        in[at] = (unsigned char)(at * 7 % 253);
    expect(verbena_memory_put(here, &big, 0, in, LONG, NULL, &first), VERBENA_OK);
    expect(verbena_memory_find(there, "big", &found), VERBENA_OK);
    expect(memcmp(&found, &big, sizeof big), 0);
    expect(verbena_memory_get(there, &found, 0, out, LONG, &second, &stamp_ns), VERBENA_OK);
    expect(memcmp(in, out, LONG) == 0 && first == second && stamp_ns > 0, 1);
    /* A part, and only that much of the buffer. */
    expect(verbena_memory_put(there, &big, 10, "part", 4, NULL, &second), VERBENA_OK);
    expect(second == first + 1, 1);
    expect(verbena_memory_get(here, &big, 9, out, 6, NULL, NULL), VERBENA_OK);
    expect(out[0] == in[9] && memcmp(out + 1, "part", 4) == 0 && out[5] == in[14] && out[6] == in[6], 1);
    /* What another was faster with is not overwritten, and the version that there is is told. */
    uint64_t over = first, current = 0;
    expect(verbena_memory_put(here, &big, 0, "late", 4, &over, &current), VERBENA_CONFLICT);
    expect(current == second && over == first, 1);
    expect(verbena_memory_put(here, &big, 0, "next", 4, &current, &current), VERBENA_OK);
    expect(current == second + 1, 1);
    /* Too long to be staged, and of a part that is not there. */
    unsigned char *much = calloc(17 << 20, 1);
    expect(verbena_memory_put(here, &big, 0, much, 17 << 20, NULL, NULL), VERBENA_BAD_ARGUMENT);
    free(much);
    expect(verbena_memory_put(here, &big, 1, in, LONG, NULL, NULL), VERBENA_OUT_OF_RANGE);
    verbena_segment versioned = made(here, NULL, 8, "version", "b");
    expect(verbena_memory_put(here, &versioned, 0, in, 8, NULL, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_release(there, &versioned), VERBENA_OK);
    expect(verbena_memory_release(there, &big), VERBENA_OK);
}

static void windows(verbena_memory *here, verbena_memory *there) {
    verbena_window *window = (verbena_window *)here;
    verbena_segment shown = made(here, "shown", 24, NULL, "a");
    uint64_t version;
    expect(verbena_memory_window(NULL, &shown, &window), VERBENA_BAD_ARGUMENT);
    expect(window == NULL, 1);
    expect(verbena_memory_window(here, NULL, &window), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_window(here, &shown, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_memory_window(there, &shown, &window), VERBENA_ELSEWHERE);
    expect(says("is at node a"), 1);
    expect(window == NULL, 1);
    expect(verbena_window_data(NULL) == NULL && verbena_window_bytes(NULL) == 0 && verbena_window_version(NULL) == 0, 1);
    expect(verbena_window_holds(NULL) || verbena_window_is_newest(NULL) || verbena_window_newest(NULL), 0);
    expect(verbena_window_stamp_ns(NULL), 0);
    verbena_window_close(NULL);
    expect(verbena_memory_put(there, &shown, 0, "twenty-four bytes of it.", 24, NULL, &version), VERBENA_OK);
    expect(verbena_memory_window(here, &shown, &window), VERBENA_OK);
    expect(verbena_window_bytes(window) == 24 && verbena_window_version(window) == version, 1);
    expect(verbena_window_stamp_ns(window) > 0, 1);
    expect(memcmp(verbena_window_data(window), "twenty-four bytes of it.", 24), 0);
    expect(verbena_window_holds(window) && verbena_window_is_newest(window), 1);
    /* Whoever looks again asks nobody. */
    expect(verbena_memory_put(there, &shown, 7, "F", 1, NULL, NULL), VERBENA_OK);
    expect(verbena_window_is_newest(window), 0);
    expect(verbena_window_newest(window), 1);
    expect(verbena_window_version(window) == version + 1 && verbena_window_is_newest(window), 1);
    expect(memcmp(verbena_window_data(window), "twenty-Four bytes of it.", 24), 0);
    expect(verbena_memory_release(there, &shown), VERBENA_OK);
    for (int tries = 0; tries < 2000 && verbena_window_holds(window); tries++)
        usleep(1000);
    expect(verbena_window_holds(window) || verbena_window_newest(window), 0);
    verbena_window_close(window);
    expect(verbena_memory_window(here, &shown, &window), VERBENA_RELEASED);
}

static void what_is_known(verbena_memory *here, verbena_memory *there) {
    verbena_segment_info infos[3];
    size_t count = 0, silent = 9;
    verbena_segment segment;
    expect(verbena_memory_allocate(here, "t/one", 8, "delta(4)", 2, 0, "b", &segment), VERBENA_OK);
    made(there, "t/two", 16, NULL, "local");
    made(there, NULL, 24, NULL, "spread");
    expect(verbena_memory_stat(there, &segment, &infos[0]), VERBENA_OK);
    expect(strcmp(infos[0].name, "t/one") || strcmp(infos[0].home, "b") || strcmp(infos[0].coherence, "delta(4)"), 0);
    expect(memcmp(&infos[0].segment, &segment, sizeof segment), 0);
    expect(infos[0].bytes, 8);
    expect(infos[0].writers, 2);
    expect(infos[0].owner, getuid());
    expect(infos[0].takes > 8 && infos[0].stamp_ns == 0, 1);
    expect(verbena_memory_put(here, &segment, 0, "12345678", 8, NULL, NULL), VERBENA_OK);
    expect(verbena_memory_stat(there, &segment, &infos[1]), VERBENA_OK);
    expect(infos[1].version == infos[0].version + 1 && infos[1].stamp_ns > 0, 1);
    expect(verbena_memory_list(here, "t/", infos, 1, &count, &silent), VERBENA_OK);
    expect(count, 2);
    expect(silent, 0);
    expect(strcmp(infos[0].name, "t/one") || infos[0].version != 0 || infos[1].version == 0, 0);
    expect(verbena_memory_list(here, NULL, infos, 3, &count, NULL), VERBENA_OK);
    expect(count, 3);
    for (size_t nth = 0; nth < count; nth++)
        expect(verbena_memory_release(here, &infos[nth].segment), VERBENA_OK);
    expect(verbena_memory_list(there, NULL, NULL, 0, &count, NULL), VERBENA_OK);
    expect(count, 0);
}

static void checkpoints(verbena_memory *here, verbena_memory *there) {
    verbena_joined joined, again;
    verbena_checkpoints shown;
    verbena_checkpoint_process processes[2];
    char part[100];
    size_t length = 7;
    uint64_t complete = 7;
    expect(verbena_checkpoints_make(NULL, "run", 2, 100, 0, 0, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_make(here, NULL, 2, 100, 0, 0, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_make(here, "run", 0, 100, 0, 0, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_make(here, "run", 2, 100, 65, 0, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_make(here, "run", 2, 100, 0, 256, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_make(here, "run", 2, 100, 0, 0, "nobody"), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_show(here, "run", &shown, NULL, 0), VERBENA_NOT_FOUND);
    expect(verbena_checkpoints_make(here, "run", 2, 100, 3, 2, "a"), VERBENA_OK);
    expect(verbena_checkpoints_make(there, "run", 2, 100, 0, 0, NULL), VERBENA_EXISTS);
    /* What cannot be does nothing: nobody has joined after it. */
    expect(verbena_checkpoints_join(NULL, "run", 0, &joined, part, 100, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_join(here, NULL, 0, &joined, part, 100, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_join(here, "run", 0, NULL, part, 100, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_join(here, "run", 0, &joined, NULL, 100, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_join(here, "run", 2, &joined, part, 100, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_show(here, "run", NULL, processes, 2), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_show(here, "run", &shown, NULL, 2), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_show(there, "run", &shown, processes, 2), VERBENA_OK);
    expect(shown.era == 1 && shown.complete == 0 && shown.kept == 3 && shown.bytes == 100 && shown.processes == 2, 1);
    expect(processes[0].has_joined || processes[1].has_joined, 0);
    expect(verbena_checkpoints_join(here, "run", 0, &joined, NULL, 0, &length), VERBENA_OK);
    expect(joined.era == 1 && joined.number == 0 && length == 0, 1);
    expect(verbena_checkpoints_save(NULL, "run", 0, 1, 1, "0-1", 3, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_save(here, NULL, 0, 1, 1, "0-1", 3, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_save(here, "run", 0, 1, 1, NULL, 3, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_save(here, "run", 0, 1, 1, part, (size_t)-1, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_save(here, "run", 0, 1, 1, &shown, 101, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_save(here, "run", 0, 1, 2, "0-2", 3, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_save(here, "run", 1, 1, 1, "1-1", 3, NULL), VERBENA_ROLLED_BACK);
    expect(verbena_checkpoints_save(here, "run", 0, 1, 1, "0-1", 3, &complete), VERBENA_OK);
    expect(complete, 0);
    expect(verbena_checkpoints_part(there, "run", 0, 1, part, 100, NULL), VERBENA_NOT_FOUND);
    expect(verbena_checkpoints_wait(here, "run", 1, 1, 30), VERBENA_NOT_IN_TIME);
    expect(says("checkpoint 1 of run was not complete within 30ms"), 1);
    expect(verbena_checkpoints_join(there, "run", 1, &joined, part, 100, NULL), VERBENA_OK);
    expect(verbena_checkpoints_save(there, "run", 1, joined.era, 1, "1-1 and more", 12, &complete), VERBENA_OK);
    expect(complete, 1);
    expect(verbena_checkpoints_wait(here, "run", 1, 1, 0), VERBENA_OK);
    /* One without bytes is one. */
    expect(verbena_checkpoints_save(here, "run", 0, 1, 2, "", 0, NULL), VERBENA_OK);
    expect(verbena_checkpoints_save(there, "run", 1, 1, 2, "1-2", 3, NULL), VERBENA_OK);
    expect(verbena_checkpoints_show(here, "run", &shown, processes, 1), VERBENA_OK);
    expect(shown.oldest == 1 && shown.complete == 2 && processes[0].has_joined && processes[0].saved == 2, 1);
    expect(verbena_checkpoints_part(here, "run", 0, 2, part, 100, &length), VERBENA_OK);
    expect(length, 0);
    expect(verbena_checkpoints_part(here, "run", 0, 2, NULL, 1, &length), VERBENA_BAD_ARGUMENT);
    /* Process 1 begins again, where its part has no room at first. */
    memset(part, '.', sizeof part);
    expect(verbena_checkpoints_join(here, "run", 1, &again, part, 2, &length), VERBENA_OK);
    expect(again.era == 2 && again.number == 2 && length == 3 && part[0] == '.', 1);
    expect(verbena_checkpoints_part(here, "run", 1, 2, part, 3, &length), VERBENA_OK);
    expect(memcmp(part, "1-2.", 4), 0);
    expect(verbena_checkpoints_save(here, "run", 0, 1, 3, "late", 4, NULL), VERBENA_ROLLED_BACK);
    expect(verbena_checkpoints_wait(here, "run", 1, 3, 0), VERBENA_ROLLED_BACK);
    expect(verbena_checkpoints_roll_back(there, "run", 3), VERBENA_NOT_FOUND);
    expect(verbena_checkpoints_roll_back(there, "run", 1), VERBENA_OK);
    expect(verbena_checkpoints_join(here, "run", 1, &again, part, sizeof part, &length), VERBENA_OK);
    expect(again.era == 3 && again.number == 1 && length == 12 && memcmp(part, "1-1 and more", 12) == 0, 1);
    expect(verbena_checkpoints_remove(NULL, "run"), VERBENA_BAD_ARGUMENT);
    expect(verbena_checkpoints_remove(here, "run"), VERBENA_OK);
    expect(verbena_checkpoints_remove(here, "run"), VERBENA_NOT_FOUND);
}

static void *waits(void *there) {
    verbena_segment segment;
    verbena_hold hold;
    expect(verbena_memory_find(there, "locked", &segment), VERBENA_OK);
    expect(verbena_memory_lock(there, &segment, VERBENA_EXCLUSIVE, 10000, &hold), VERBENA_OK);
    expect(verbena_memory_unlock(there, &hold), VERBENA_OK);
    return NULL;
}

static void locks_threads_and_children(verbena_memory *here, verbena_memory *there) {
    verbena_segment segment = made(here, "locked", 8, NULL, "a");
    verbena_hold hold, other;
    uint64_t word;
    int status;
    pthread_t thread;
    verbena_locks *locks = verbena_memory_locks(here);
    expect(verbena_memory_lock(here, &segment, VERBENA_EXCLUSIVE, VERBENA_NO_LIMIT, &hold), VERBENA_OK);
    expect(verbena_is_held(locks, &hold) && verbena_token(locks, &hold) > 0, 1);
    expect(verbena_memory_lock(there, &segment, VERBENA_SHARED, 0, &other), VERBENA_NOT_IN_TIME);
    expect(verbena_memory_lock(there, &segment, VERBENA_SHARED, 30, &other), VERBENA_NOT_IN_TIME);
    expect(verbena_memory_unlock(there, &hold), VERBENA_NOT_HELD);
    /* A lock keeps out who asks for it, and no puts. */
    expect(verbena_memory_put(there, &segment, 0, "12345678", 8, NULL, NULL), VERBENA_OK);
    expect(pthread_create(&thread, NULL, waits, there), 0);
    usleep(200000);
    expect(verbena_memory_get(there, &segment, 0, &word, 8, NULL, NULL), VERBENA_BUSY);
    expect(verbena_memory_release(there, &segment), VERBENA_BUSY);
    pid_t child = fork();
    if (child == 0) {
        expect(verbena_memory_get(here, &segment, 0, &word, 8, NULL, NULL), VERBENA_FORKED);
        expect(verbena_memory_unlock(here, &hold), VERBENA_FORKED);
        verbena_memory_close(here);
        _exit(0);
    }
    expect(waitpid(child, &status, 0) == child && status == 0, 1);
    expect(verbena_is_held(locks, &hold), 1);
    expect(verbena_memory_unlock(here, &hold), VERBENA_OK);
    expect(verbena_memory_unlock(here, &hold), VERBENA_NOT_HELD);
    expect(pthread_join(thread, NULL), 0);
    /* One holder with all that it has, by whichever name. */
    expect(verbena_memory_lock(here, &segment, VERBENA_SHARED, 5000, &hold), VERBENA_OK);
    expect(verbena_memory_lock(there, &segment, VERBENA_SHARED, 5000, &other), VERBENA_OK);
    expect(verbena_memory_unlock(there, &other), VERBENA_OK);
    expect(verbena_release(locks, &hold), VERBENA_OK);
    expect(verbena_memory_release(here, &segment), VERBENA_OK);
}

int main(int count, char **sockets) {
    verbena_memory *here, *there;
    verbena_segment lost = NONE, held;
    verbena_hold hold;
    uint64_t word = 77;
    const char *names = "A\0B\0C\0D\0E\0F\0G\0H\0I\0J\0K\0L\0M\0N\0O\0P\0";
    expect(count, 3);
    expect(verbena_memory_connect(sockets[1], 10000, &here), VERBENA_OK);
    expect(verbena_memory_connect(sockets[2], 5000, &there), VERBENA_OK);
    null_and_nonsense(here);
    values(here, there);
    windows(here, there);
    what_is_known(here, there);
    checkpoints(here, there);
    locks_threads_and_children(here, there);
    for (const char *name = names; *name != 0; name += 2)
        lost = made(here, name, 8, NULL, "b");
    held = made(there, "held", 8, NULL, "a");
    expect(verbena_memory_lock(there, &held, VERBENA_EXCLUSIVE, 5000, &hold), VERBENA_OK);
    /* The helper of b is killed now, says who started this. */
    puts("held");
    fflush(stdout);
    verbena_result result = VERBENA_OK;
    for (int nth = 0; result == VERBENA_OK; nth++) {
        expect(nth < 10000, 1);
        usleep(1000);
        word = 77;
        result = verbena_memory_get(here, &lost, 0, &word, 8, NULL, NULL);
    }
    expect(result, VERBENA_GONE);
    expect(verbena_memory_put(here, &lost, 0, &word, 8, NULL, NULL), VERBENA_GONE);
    expect(word, 77);
    /* A name is lost as well where b was the one to know it; of so many, not all are. */
    int known = 0;
    for (const char *name = names; *name != 0; name += 2) {
        result = verbena_memory_find(here, name, &lost);
        expect(result == VERBENA_GONE || result == VERBENA_NOT_FOUND, 1);
        known += result == VERBENA_GONE;
        expect(verbena_memory_release_name(here, name), result == VERBENA_GONE ? VERBENA_OK : VERBENA_NOT_FOUND);
        expect(verbena_memory_find(here, name, &lost), VERBENA_NOT_FOUND);
    }
    expect(known > 0, 1);
    expect(verbena_memory_get(there, &held, 0, &word, 8, NULL, NULL), VERBENA_DISCONNECTED);
    expect(verbena_memory_unlock(there, &hold), VERBENA_LOST);
    verbena_memory_close(there);
    /* What stands at a is there, and what the other held is free. */
    expect(verbena_memory_get(here, &held, 0, &word, 8, NULL, NULL), VERBENA_OK);
    expect(word, 0);
    expect(verbena_memory_lock(here, &held, VERBENA_EXCLUSIVE, 5000, &hold), VERBENA_OK);
    verbena_memory_close(here);
    return 0;
}
