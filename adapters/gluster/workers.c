/* Threads that talk to daemons, so that no fop waits for one. The queue is bounded. */

#include "bank.h"

#include <stdlib.h>

struct entry {
    job_function function;
    void *job;
};

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t work, room;
    xlator_t *this;
    int threads, longest, count, first;
    bool ends;
    struct entry *queue;
    pthread_t *thread;
};

static __thread struct worker *current;

static void *run(void *argument)
{
    struct workers *workers = argument;
    struct worker own = {.all = workers};
    links_init(&own.links);
    current = &own;
    pthread_mutex_lock(&workers->lock);
    for (;;) {
        while (!workers->count && !workers->ends)
            pthread_cond_wait(&workers->work, &workers->lock);
        if (!workers->count)
            break;
        struct entry entry = workers->queue[workers->first];
        workers->first = (workers->first + 1) % workers->longest;
        workers->count--;
        pthread_cond_signal(&workers->room);
        pthread_mutex_unlock(&workers->lock);
        THIS = workers->this;
        entry.function(&own, entry.job);
        pthread_mutex_lock(&workers->lock);
    }
    pthread_mutex_unlock(&workers->lock);
    links_close(&own.links);
    return NULL;
}

struct workers *workers_start(xlator_t *this, int count, int longest)
{
    struct workers *workers = calloc(1, sizeof *workers);
    if (!workers)
        return NULL;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->work, NULL);
    pthread_cond_init(&workers->room, NULL);
    workers->this = this;
    workers->longest = longest;
    workers->queue = calloc(longest, sizeof *workers->queue);
    workers->thread = calloc(count, sizeof *workers->thread);
    while (workers->queue && workers->thread && workers->threads < count) {
        if (gf_thread_create(&workers->thread[workers->threads], NULL, run, workers, "vbbank%d", workers->threads))
            break;
        workers->threads++;
    }
    if (workers->threads == count)
        return workers;
    workers_end(workers);
    return NULL;
}

static void append(struct workers *workers, job_function function, void *job)
{
    workers->queue[(workers->first + workers->count++) % workers->longest] = (struct entry){function, job};
    pthread_cond_signal(&workers->work);
}

bool workers_try(struct workers *workers, job_function function, void *job)
{
    pthread_mutex_lock(&workers->lock);
    bool has_room = workers->count < workers->longest;
    if (has_room)
        append(workers, function, job);
    pthread_mutex_unlock(&workers->lock);
    return has_room;
}

void workers_give(struct workers *workers, job_function function, void *job)
{
    /* A worker that waited for room could wait for itself. */
    if (current && current->all == workers) {
        function(current, job);
        return;
    }
    pthread_mutex_lock(&workers->lock);
    while (workers->count == workers->longest)
        pthread_cond_wait(&workers->room, &workers->lock);
    append(workers, function, job);
    pthread_mutex_unlock(&workers->lock);
}

void workers_end(struct workers *workers)
{
    if (!workers)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->ends = true;
    pthread_cond_broadcast(&workers->work);
    pthread_mutex_unlock(&workers->lock);
    for (int at = 0; at < workers->threads; at++)
        pthread_join(workers->thread[at], NULL);
    free(workers->queue);
    free(workers->thread);
    free(workers);
}
