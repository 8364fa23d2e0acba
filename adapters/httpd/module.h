/* What the parts of the module share: mod_verbena.c (connections, directives), copies.c (the provider) and writes.c (updates). */

#ifndef VERBENA_MODULE_H
#define VERBENA_MODULE_H

/* Before what stands on it. */
#include "httpd.h"

#include "ap_provider.h"
#include "apr_hash.h"
#include "apr_strings.h"
#include "apr_thread_mutex.h"
#include "http_config.h"
#include "http_core.h"
#include "http_log.h"
#include "http_protocol.h"
#include "http_request.h"
#include "mod_cache.h"
#include "util_filter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbena.h"

extern module AP_MODULE_DECLARE_DATA verbena_module;

#pragma GCC visibility push(hidden)

/* 6 numbers of 16 digits, and what is between them. */
#define STAMP_BYTES 128

/* Of the whole server: its processes share the store. */
typedef struct {
    const char *socket;
    const char *store;
    int timeout_ms;
    const cache_provider *inner;
} server_settings;

extern server_settings settings;

typedef struct {
    int writes;
} dir_conf;

/* A request that may be answered from a copy. */
typedef struct {
    verbena_fill *fill;
    const char *key;
    char stamp[STAMP_BYTES];
    /* The answer may be stored, under the stamp. */
    int is_storable;
} copy;

/* A request that writes. */
typedef struct {
    verbena_pages *pages;
    uint64_t update;
    int is_open;
    apr_bucket_brigade *held;
} bracket;

typedef struct {
    copy *copy;
    bracket *bracket;
    /* Its Cache-Control and Pragma, which are not for mod_cache: each copy is looked at after the request arrived. */
    const char *cache_control, *pragma;
} state;

/* Logs what the library said last, with what it means. */
void say(request_rec *r, int level, const char *what);
/* A connection to the helper for this thread, or NULL. */
verbena_pages *borrow(request_rec *r);
/* A connection that failed in any other way than by a refusal is not used again. */
void give_back(verbena_pages *pages, verbena_result last);

state *state_of(request_rec *r);
/* Of the request that came from the client, also after an internal redirect. */
copy *copy_of(request_rec *r);
int is_bracketed(request_rec *r);
/* For apr_table_do, into an array of verbena_field. */
int add_field(void *fields, const char *name, const char *value);
verbena_fill *fill_of(request_rec *r, int writes);

/* copies.c: the provider, and the filters before and behind that of mod_cache. */
extern const cache_provider copies;
apr_status_t judge(ap_filter_t *f, apr_bucket_brigade *bb);
apr_status_t restore(ap_filter_t *f, apr_bucket_brigade *bb);

/* writes.c: the first of all handlers, and its filters. */
int before_handlers(request_rec *r);
apr_status_t gathered(ap_filter_t *f, apr_bucket_brigade *bb, ap_input_mode_t mode, apr_read_type_e block, apr_off_t bytes);
apr_status_t hold(ap_filter_t *f, apr_bucket_brigade *bb);

#ifdef VERBENA_SWITCHES
/* Of the tests' own build alone: VERBENA_WITHOUT names rules that do not hold. */
int without(const char *rule);
/* Without V1: the stamps of copies, in a table beside them. */
void keep_beside(request_rec *r, const char *key, const char *stamp);
const char *kept_beside(request_rec *r, const char *key);
/* Waits as long as the test has a file of this name. */
void pause_at(request_rec *r, const char *what);
#else
#define without(rule) 0
#define keep_beside(r, key, stamp) (void)0
#define kept_beside(r, key) NULL
#define pause_at(r, what) (void)0
#endif

#pragma GCC visibility pop

#endif
