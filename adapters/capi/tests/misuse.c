/* What a program can do wrong with locks, and what it hears. Arguments: the sockets of two nodes of one cluster. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

static void null_and_nonsense(verbena_locks *locks) {
    verbena_hold hold;
    verbena_locks *none = locks;
    char name[VERBENA_MAX_NAME_BYTES + 1];
    memset(name, 'n', sizeof name);
    expect(verbena_connect(NULL, 1000, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_connect("", 1000, &none), VERBENA_BAD_ARGUMENT);
    expect(none == NULL, 1);
    expect(verbena_connect("/nowhere/at/all.sock", 1000, &none), VERBENA_NO_HELPER);
    expect(says("/nowhere/at/all.sock"), 1);
    expect(verbena_acquire(NULL, "x", 1, VERBENA_SHARED, 0, &hold), VERBENA_BAD_ARGUMENT);
    expect(verbena_acquire(locks, NULL, 1, VERBENA_SHARED, 0, &hold), VERBENA_BAD_ARGUMENT);
    expect(verbena_acquire(locks, "x", 1, VERBENA_SHARED, 0, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_acquire(locks, "", 0, VERBENA_SHARED, 0, &hold), VERBENA_BAD_ARGUMENT);
    expect(verbena_acquire(locks, name, sizeof name, VERBENA_SHARED, 0, &hold), VERBENA_BAD_ARGUMENT);
    expect(says("1025 bytes"), 1);
    expect(verbena_acquire(locks, name, (size_t)-1, VERBENA_SHARED, 0, &hold), VERBENA_BAD_ARGUMENT);
    expect(verbena_acquire(locks, "x", 1, 0, 0, &hold), VERBENA_BAD_ARGUMENT);
    expect(verbena_acquire(locks, "x", 1, 3, 0, &hold), VERBENA_BAD_ARGUMENT);
    expect(says("3 is no mode"), 1);
    expect(verbena_acquire(locks, "x", 1, VERBENA_SHARED, -2, &hold), VERBENA_BAD_ARGUMENT);
    expect(verbena_release(NULL, &hold), VERBENA_BAD_ARGUMENT);
    expect(verbena_release(locks, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_release(locks, &hold), VERBENA_NOT_HELD);
    expect(verbena_share(locks, &hold), VERBENA_NOT_HELD);
    expect(verbena_is_held(NULL, &hold) || verbena_is_held(locks, NULL) || verbena_is_held(locks, &hold), 0);
    expect(verbena_token(NULL, &hold) + verbena_token(locks, NULL) + verbena_token(locks, &hold), 0);
    expect(verbena_mode_of(locks, &hold) + verbena_mode_of(NULL, NULL), 0);
    expect(verbena_good_for_ns(locks, &hold) + verbena_held_until_ns(NULL), 0);
    verbena_close(NULL);
    /* The longest that can be, and bytes that are no text. */
    expect(verbena_acquire(locks, name, VERBENA_MAX_NAME_BYTES, VERBENA_EXCLUSIVE, 5000, &hold), VERBENA_OK);
    expect(verbena_release(locks, &hold), VERBENA_OK);
    expect(verbena_acquire(locks, "\0\xff", 2, VERBENA_EXCLUSIVE, 5000, &hold), VERBENA_OK);
    expect(verbena_release(locks, &hold), VERBENA_OK);
}

static void words_fit_their_buffer(void) {
    char words[8] = "1234567";
    expect(verbena_connect("/nowhere/at/all.sock", 1000, &(verbena_locks *){NULL}), VERBENA_NO_HELPER);
    size_t whole = verbena_last_error(NULL, 0);
    expect(whole > sizeof words, 1);
    expect(verbena_last_error(words, 4) == whole, 1);
    expect(strlen(words), 3);
    expect(words[4], '5');
    expect(strlen(verbena_version()) >= 5, 1);
}

static void one_at_a_time(verbena_locks *here, verbena_locks *there) {
    verbena_hold hold, other, copy;
    expect(verbena_acquire(here, "x", 1, VERBENA_EXCLUSIVE, VERBENA_NO_LIMIT, &hold), VERBENA_OK);
    expect(verbena_is_held(here, &hold), 1);
    expect(verbena_mode_of(here, &hold), VERBENA_EXCLUSIVE);
    uint64_t token = verbena_token(here, &hold), good_for = verbena_good_for_ns(here, &hold);
    expect(token > 0 && good_for > 0 && good_for < 1000000000, 1);
    expect(verbena_held_until_ns(here) > good_for, 1);
    expect(verbena_wait_lost(here, &hold, 0) || verbena_wait_lost(here, &hold, 20), 0);
    expect(verbena_wait_lost(there, &hold, VERBENA_NO_LIMIT) && verbena_wait_lost(here, NULL, 20), 1);
    expect(verbena_acquire(there, "x", 1, VERBENA_SHARED, 0, &other), VERBENA_NOT_IN_TIME);
    expect(verbena_acquire(there, "x", 1, VERBENA_SHARED, 30, &other), VERBENA_NOT_IN_TIME);
    /* Once more what it has. */
    expect(verbena_acquire(here, "x", 1, VERBENA_EXCLUSIVE, 0, &copy), VERBENA_OK);
    expect(verbena_token(here, &copy) == token, 1);
    expect(verbena_release(here, &copy), VERBENA_OK);
    expect(verbena_is_held(here, &copy), 0);
    /* Another connection's. */
    expect(verbena_is_held(there, &hold), 0);
    expect(verbena_token(there, &hold), 0);
    expect(verbena_share(there, &hold), VERBENA_NOT_HELD);
    expect(verbena_release(there, &hold), VERBENA_NOT_HELD);
    expect(verbena_is_held(here, &hold), 1);
    /* Others may read with it. */
    expect(verbena_share(here, &hold), VERBENA_OK);
    expect(verbena_mode_of(here, &hold), VERBENA_SHARED);
    expect(verbena_token(here, &hold) > token, 1);
    expect(verbena_share(here, &hold), VERBENA_REFUSED);
    expect(verbena_is_held(here, &hold), 1);
    expect(verbena_acquire(there, "x", 1, VERBENA_SHARED, 5000, &other), VERBENA_OK);
    expect(verbena_release(there, &other), VERBENA_OK);
    copy = hold;
    expect(verbena_release(here, &copy), VERBENA_OK);
    expect(verbena_release(here, &hold), VERBENA_NOT_HELD);
    expect(verbena_is_held(here, &hold), 0);
    expect(verbena_wait_lost(here, &hold, VERBENA_NO_LIMIT), 1);
    expect(verbena_acquire(there, "x", 1, VERBENA_EXCLUSIVE, 5000, &other), VERBENA_OK);
    expect(verbena_token(there, &other) > token, 1);
    expect(verbena_release(there, &other), VERBENA_OK);
}

static void what_nobody_uses_is_forgotten(verbena_locks *here, verbena_locks *there) {
    verbena_hold hold, other;
    bool was_known = true;
    char holder[64];
    expect(verbena_lock_remove(NULL, "x", 1, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_lock_remove(here, NULL, 1, &was_known), VERBENA_BAD_ARGUMENT);
    expect(was_known, 0);
    expect(verbena_lock_remove(here, "", 0, NULL), VERBENA_BAD_ARGUMENT);
    expect(verbena_acquire(here, "removed", 7, VERBENA_EXCLUSIVE, 5000, &hold), VERBENA_OK);
    expect(verbena_acquire(there, "removed too", 11, VERBENA_EXCLUSIVE, 5000, &other), VERBENA_OK);
    snprintf(holder, sizeof holder, "process %d at a holds it", (int)getpid());
    was_known = true;
    expect(verbena_lock_remove(there, "removed", 7, &was_known), VERBENA_IN_USE);
    expect(was_known, 0);
    expect(says("in use, and not removed") && says(holder) && !says("at b"), 1);
    expect(verbena_lock_remove(here, "removed", 7, NULL), VERBENA_IN_USE);
    expect(verbena_is_held(here, &hold), 1);
    /* One whose name only begins so is another one. */
    expect(verbena_lock_remove(there, "remove", 6, &was_known), VERBENA_OK);
    expect(was_known, 0);
    expect(verbena_release(here, &hold), VERBENA_OK);
    expect(verbena_release(there, &other), VERBENA_OK);
    verbena_result result = VERBENA_IN_USE;
    for (int nth = 0; result == VERBENA_IN_USE; nth++) {
        expect(nth < 10000, 1);
        usleep(1000);
        result = verbena_lock_remove(there, "removed", 7, &was_known);
    }
    expect(result, VERBENA_OK);
    expect(was_known, 1);
    expect(verbena_lock_remove(there, "removed", 7, &was_known), VERBENA_OK);
    expect(was_known, 0);
    expect(verbena_acquire(there, "removed", 7, VERBENA_EXCLUSIVE, 5000, &hold), VERBENA_OK);
    expect(verbena_release(there, &hold), VERBENA_OK);
}

static void *holds_y_wants_x(void *there) {
    verbena_hold x, y;
    expect(verbena_acquire(there, "y", 1, VERBENA_EXCLUSIVE, 5000, &y), VERBENA_OK);
    expect(verbena_acquire(there, "x", 1, VERBENA_EXCLUSIVE, 10000, &x), VERBENA_OK);
    expect(verbena_release(there, &x), VERBENA_OK);
    expect(verbena_release(there, &y), VERBENA_OK);
    return NULL;
}

static void who_waits_for_itself_is_told(verbena_locks *here, verbena_locks *there) {
    verbena_hold x, y;
    pthread_t thread;
    expect(verbena_acquire(here, "x", 1, VERBENA_EXCLUSIVE, 5000, &x), VERBENA_OK);
    expect(pthread_create(&thread, NULL, holds_y_wants_x, there), 0);
    usleep(200000);
    expect(verbena_acquire(here, "y", 1, VERBENA_EXCLUSIVE, 10000, &y), VERBENA_DEADLOCK);
    expect(says("deadlock: "), 1);
    expect(verbena_release(here, &y), VERBENA_NOT_HELD);
    expect(verbena_release(here, &x), VERBENA_OK);
    expect(pthread_join(thread, NULL), 0);
}

static void *waits(void *there) {
    verbena_hold hold;
    expect(verbena_acquire(there, "y", 1, VERBENA_EXCLUSIVE, 10000, &hold), VERBENA_OK);
    expect(verbena_release(there, &hold), VERBENA_OK);
    return NULL;
}

static void threads_are_told(verbena_locks *here, verbena_locks *there) {
    verbena_hold held, kept, hold;
    pthread_t thread;
    expect(verbena_acquire(here, "y", 1, VERBENA_EXCLUSIVE, 5000, &held), VERBENA_OK);
    expect(verbena_acquire(there, "z", 1, VERBENA_EXCLUSIVE, 5000, &kept), VERBENA_OK);
    expect(pthread_create(&thread, NULL, waits, there), 0);
    usleep(200000);
    expect(verbena_acquire(there, "w", 1, VERBENA_EXCLUSIVE, 0, &hold), VERBENA_BUSY);
    expect(verbena_release(there, &kept), VERBENA_BUSY);
    /* Who only looks does not wait for anybody. */
    expect(verbena_is_held(there, &kept), 1);
    expect(verbena_release(here, &held), VERBENA_OK);
    expect(pthread_join(thread, NULL), 0);
    expect(verbena_release(there, &kept), VERBENA_OK);
}

static void a_child_connects_for_itself(verbena_locks *here) {
    verbena_hold held, hold;
    int status;
    expect(verbena_acquire(here, "x", 1, VERBENA_EXCLUSIVE, 5000, &held), VERBENA_OK);
    pid_t child = fork();
    if (child == 0) {
        expect(verbena_acquire(here, "y", 1, VERBENA_EXCLUSIVE, 0, &hold), VERBENA_FORKED);
        expect(verbena_release(here, &held), VERBENA_FORKED);
        verbena_close(here);
        _exit(0);
    }
    expect(waitpid(child, &status, 0) == child && status == 0, 1);
    expect(verbena_is_held(here, &held), 1);
    expect(verbena_release(here, &held), VERBENA_OK);
}

int main(int count, char **sockets) {
    verbena_locks *here, *there;
    expect(count, 3);
    expect(verbena_connect(sockets[1], 5000, &here), VERBENA_OK);
    expect(verbena_connect(sockets[2], 5000, &there), VERBENA_OK);
    null_and_nonsense(here);
    words_fit_their_buffer();
    one_at_a_time(here, there);
    what_nobody_uses_is_forgotten(here, there);
    threads_are_told(here, there);
    who_waits_for_itself_is_told(here, there);
    a_child_connects_for_itself(here);
    /* What is held is free once the connection is closed. */
    verbena_hold hold;
    expect(verbena_acquire(here, "x", 1, VERBENA_EXCLUSIVE, 5000, &hold), VERBENA_OK);
    verbena_close(here);
    expect(verbena_acquire(there, "x", 1, VERBENA_EXCLUSIVE, 5000, &hold), VERBENA_OK);
    /* The helper is killed now, says who started this. */
    puts("held");
    fflush(stdout);
    for (int nth = 0; verbena_is_held(there, &hold); nth++) {
        expect(nth < 10000, 1);
        usleep(1000);
    }
    expect(verbena_good_for_ns(there, &hold), 0);
    expect(verbena_release(there, &hold), VERBENA_LOST);
    expect(verbena_release(there, &hold), VERBENA_NOT_HELD);
    expect(verbena_acquire(there, "x", 1, VERBENA_EXCLUSIVE, 1000, &hold), VERBENA_DISCONNECTED);
    verbena_close(there);
    return 0;
}
