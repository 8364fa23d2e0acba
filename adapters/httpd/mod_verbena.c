/* A cache for mod_cache that serves no copy without asking: a provider around another provider.
 *
 *   CacheEnable verbena /       mod_cache asks this provider
 *   VerbenaStore socache        which keeps its copies in that one (or disk)
 *
 *   client        mod_cache            mod_verbena                helper of this machine
 *     |  GET         |                     |                          |
 *     |------------->| open_entity ------->| verbena_fill_read ------>| words, one-sidedly (V2)
 *     |              | recall_headers ---->| stamp in the copy's head equals the words? (V1)
 *     |<-------------|<-------- yes -------|
 *     |              |<-------- no --------| remove it: a miss
 *     |              |  origin answers     |
 *     |              |        (filter) --->| verbena_fill_answer: may it be shared? (V5)
 *     |              | store_headers ----->| the stamp goes with them
 *     |              | commit_entity ----->| verbena_fill_register -->| the page's home (V3)
 *     |<-------------|                     |
 *     |  POST                              |
 *     |----------------------------------->| verbena_update_begin --->| every home knows
 *     |                origin answers ---->| verbena_update_end ----->|
 *     |<-----------------------------------| the end of the answer (V6)
 *
 * What goes wrong with the helper means "use no copy, store none" for a request that reads (V7), and 503 for one that writes.
 */

/* Before what stands on it. */
#include "httpd.h"

#include "apr_strings.h"
#include "apr_thread_mutex.h"
#include "ap_provider.h"
#include "http_config.h"
#include "http_core.h"
#include "http_log.h"
#include "http_protocol.h"
#include "http_request.h"
#include "mod_cache.h"
#include "util_filter.h"

#include <stdlib.h>
#include <string.h>

#include "verbena.h"

module AP_MODULE_DECLARE_DATA verbena_module;
APLOG_USE_MODULE(verbena);

/* The stamp's place in the head of a copy. Clients never see it. */
#define STAMP "Verbena-Stamp"
/* 6 numbers of 16 digits, and what is between them. */
#define STAMP_BYTES 128
#define KEY_BYTES 33
/* What mod_cache believes of each copy: it is for this module to say that one is old (V4). */
#define FRESH "max-age=31536000"
/* Bytes of a write's answer that are held as a whole. Of a longer one the last piece is. */
#define HELD (64 * 1024)
/* Bytes of a write's body that are here before its update begins: a client that sends slowly keeps nobody's pages out of the cache. */
#define GATHERED (64 * 1024)
/* Connections to the helper that a process keeps when nobody uses them. */
#define IDLE 64
#define TIMEOUT_MS 100

/* The fields by which an application names what a page depends on. They are for caches. */
static const char *const DEPENDENCIES[] = {"Verbena-Dependencies", "Surrogate-Key", "Cache-Tag", "Cache-Groups", NULL};

/* Of the whole server: its processes share the store. */
static struct {
    const char *socket;
    const char *store;
    int timeout_ms;
    const cache_provider *inner;
} settings;

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

#ifdef VERBENA_SWITCHES
/* Of the tests' own build alone: VERBENA_WITHOUT names rules that do not hold. */
static int without(const char *rule)
{
    const char *off = getenv("VERBENA_WITHOUT");
    return off && strstr(off, rule);
}
#else
#define without(rule) 0
#endif

/* ---- Connections: one for each thread that needs one at the moment. ---- */

static struct {
    apr_thread_mutex_t *lock;
    verbena_pages *idle[IDLE];
    int count;
} connections;

static void say(request_rec *r, int level, const char *what)
{
    char words[512];
    verbena_last_error(words, sizeof words);
    ap_log_rerror(APLOG_MARK, level, 0, r, "verbena: %s: %s", what, words);
}

static verbena_pages *borrow(request_rec *r)
{
    verbena_pages *pages = NULL;
    apr_thread_mutex_lock(connections.lock);
    if (connections.count > 0)
        pages = connections.idle[--connections.count];
    apr_thread_mutex_unlock(connections.lock);
    if (!pages && verbena_pages_connect(settings.socket, settings.timeout_ms, &pages) != VERBENA_OK)
        say(r, APLOG_DEBUG, "no helper");
    return pages;
}

/* A connection that failed in any other way than by a refusal is not used again. */
static void give_back(verbena_pages *pages, verbena_result last)
{
    int is_good = last == VERBENA_OK || last == VERBENA_REFUSED;
    apr_thread_mutex_lock(connections.lock);
    if (is_good && connections.count < IDLE) {
        connections.idle[connections.count++] = pages;
        pages = NULL;
    }
    apr_thread_mutex_unlock(connections.lock);
    verbena_pages_close(pages);
}

/* ---- What is known of a request. ---- */

static state *state_of(request_rec *r)
{
    state *found = ap_get_module_config(r->request_config, &verbena_module);
    if (!found) {
        found = apr_pcalloc(r->pool, sizeof *found);
        ap_set_module_config(r->request_config, &verbena_module, found);
    }
    return found;
}

/* After an internal redirect that of the request that came from the client. */
static copy *copy_of(request_rec *r)
{
    for (; r; r = r->prev) {
        state *found = ap_get_module_config(r->request_config, &verbena_module);
        if (found && found->copy)
            return found->copy;
    }
    return NULL;
}

static int is_bracketed(request_rec *r)
{
    for (; r; r = r->prev) {
        state *found = ap_get_module_config(r->request_config, &verbena_module);
        if (found && found->bracket)
            return 1;
    }
    return 0;
}

static int add_field(void *fields, const char *name, const char *value)
{
    if (without("V5") && !strcasecmp(name, "Set-Cookie"))
        return 1;
    verbena_field *field = apr_array_push(fields);
    field->name = name;
    field->value = value;
    return 1;
}

static apr_status_t free_fill(void *fill)
{
    verbena_fill_free(fill);
    return APR_SUCCESS;
}

static verbena_fill *fill_of(request_rec *r, int writes)
{
    apr_array_header_t *fields = apr_array_make(r->pool, 16, sizeof(verbena_field));
    verbena_fill *fill = NULL;
    int has_body = apr_table_get(r->headers_in, "Transfer-Encoding") != NULL;
    const char *length = apr_table_get(r->headers_in, "Content-Length");
    if (length && strcmp(length, "0"))
        has_body = 1;
    apr_table_do(add_field, fields, r->headers_in, NULL);
    if (verbena_fill_new(r->method, r->unparsed_uri, (verbena_field *)fields->elts, fields->nelts, has_body, writes,
                         &fill) != VERBENA_OK) {
        say(r, APLOG_DEBUG, "not for a cache");
        return NULL;
    }
    apr_pool_cleanup_register(r->pool, fill, free_fill, apr_pool_cleanup_null);
    return fill;
}

/* ---- The provider. ---- */

static verbena_result read_words(request_rec *r, verbena_fill *fill)
{
    verbena_result result = VERBENA_NO_HELPER;
    verbena_pages *pages = borrow(r);
    if (pages) {
        result = verbena_fill_read(pages, fill);
        if (result != VERBENA_OK)
            say(r, APLOG_DEBUG, "do not use the cache");
        give_back(pages, result);
    }
    return result;
}

/* It is fetched for all: what this client has already is no matter, or there would be nothing to store. */
static int miss(request_rec *r, int status)
{
    apr_table_unset(r->headers_in, "If-None-Match");
    return status;
}

/* Before the request is forwarded, and before a copy is opened (V2). */
static int open_entity(cache_handle_t *h, request_rec *r, const char *key)
{
    copy *c;
    char own[KEY_BYTES];
    int opened;
    if (!settings.inner || r->main || copy_of(r))
        return DECLINED;
    c = apr_pcalloc(r->pool, sizeof *c);
    c->fill = fill_of(r, VERBENA_UNSAFE_METHODS);
    if (!c->fill || verbena_fill_intent(c->fill) != VERBENA_LOOK)
        return DECLINED;
    state_of(r)->copy = c;
    verbena_fill_key(c->fill, own, sizeof own);
    c->key = apr_pstrcat(r->pool, key, "#", own, NULL);
    ap_add_output_filter("VERBENA_JUDGE", c, r, r->connection);
    ap_add_output_filter("VERBENA_RESTORE", c, r, r->connection);
    /* It knows seconds, in which a page may have changed twice (P9). */
    apr_table_unset(r->headers_in, "If-Modified-Since");
    if (read_words(r, c->fill) != VERBENA_OK && !without("V7"))
        return DECLINED;
    opened = settings.inner->open_entity(h, r, c->key);
    return opened == OK ? OK : miss(r, opened);
}

/* The copy's own head says under what it was stored (V1). */
static apr_status_t recall_headers(cache_handle_t *h, request_rec *r)
{
    copy *c = copy_of(r);
    const char *stamp, *control;
    apr_status_t rv = settings.inner->recall_headers(h, r);
    if (rv != APR_SUCCESS)
        return miss(r, rv);
    stamp = apr_table_get(h->resp_hdrs, STAMP);
    if (!c || !stamp || !(verbena_fill_is_current(c->fill, stamp) || without("V7"))) {
        settings.inner->remove_url(h, r);
        return miss(r, APR_NOTFOUND);
    }
    apr_table_setn(r->notes, "verbena", "hit");
    apr_table_unset(h->resp_hdrs, STAMP);
    /* No cache farther out may answer without asking either (P9). */
    control = apr_table_get(h->resp_hdrs, "Cache-Control");
    apr_table_setn(h->resp_hdrs, "Cache-Control",
                   control && strstr(control, "no-transform") ? "no-cache, no-transform" : "no-cache");
    return APR_SUCCESS;
}

static int create_entity(cache_handle_t *h, request_rec *r, const char *key, apr_off_t length, apr_bucket_brigade *bb)
{
    copy *c = copy_of(r);
    (void)key;
    return c && c->is_storable ? settings.inner->create_entity(h, r, c->key, length, bb) : DECLINED;
}

static apr_status_t store_headers(cache_handle_t *h, request_rec *r, cache_info *info)
{
    copy *c = copy_of(r);
    apr_status_t rv;
    if (!c || !c->is_storable)
        return APR_EGENERAL;
    apr_table_setn(r->headers_out, STAMP, c->stamp);
    rv = settings.inner->store_headers(h, r, info);
    apr_table_unset(r->headers_out, STAMP);
    return rv;
}

/* The whole answer is here; the client has not got its end (V3). */
static apr_status_t commit_entity(cache_handle_t *h, request_rec *r)
{
    copy *c = copy_of(r);
    verbena_result result = VERBENA_REFUSED;
    verbena_pages *pages;
    if (without("V3"))
        return settings.inner->commit_entity(h, r);
    if (c && c->is_storable && !r->no_cache && !r->connection->aborted && (pages = borrow(r))) {
        result = verbena_fill_register(pages, c->fill);
        if (result != VERBENA_OK)
            say(r, APLOG_DEBUG, "not stored");
        give_back(pages, result);
    }
    if (result == VERBENA_OK)
        return settings.inner->commit_entity(h, r);
    settings.inner->remove_entity(h);
    return APR_EGENERAL;
}

static int remove_entity(cache_handle_t *h)
{
    return settings.inner->remove_entity(h);
}

static apr_status_t store_body(cache_handle_t *h, request_rec *r, apr_bucket_brigade *in, apr_bucket_brigade *out)
{
    return settings.inner->store_body(h, r, in, out);
}

static apr_status_t recall_body(cache_handle_t *h, apr_pool_t *p, apr_bucket_brigade *bb)
{
    return settings.inner->recall_body(h, p, bb);
}

static int remove_url(cache_handle_t *h, request_rec *r)
{
    return settings.inner->remove_url(h, r);
}

static apr_status_t invalidate_entity(cache_handle_t *h, request_rec *r)
{
    return settings.inner->invalidate_entity(h, r);
}

static const cache_provider provider = {
    remove_entity, store_headers, store_body, recall_headers, recall_body,
    create_entity, open_entity,   remove_url, commit_entity,  invalidate_entity,
};

/* ---- Answers on their way: before mod_cache's filter, and behind it. ---- */

static void unset(request_rec *r, const char *name)
{
    apr_table_unset(r->headers_out, name);
    apr_table_unset(r->err_headers_out, name);
}

static int says(request_rec *r, const char *directive)
{
    const char *control = apr_table_getm(r->pool, r->headers_out, "Cache-Control");
    const char *more = apr_table_getm(r->pool, r->err_headers_out, "Cache-Control");
    return (control && ap_strcasestr(control, directive)) || (more && ap_strcasestr(more, directive));
}

/* Says whether the answer may be stored, by the rules of the proxy (V5), and shows it to mod_cache as one that lasts (V4). */
static apr_status_t judge(ap_filter_t *f, apr_bucket_brigade *bb)
{
    request_rec *r = f->r;
    copy *c = f->ctx;
    apr_array_header_t *fields = apr_array_make(r->pool, 16, sizeof(verbena_field));
    verbena_pages *pages;
    const char *tag;
    ap_remove_output_filter(f);
    unset(r, STAMP);
    apr_table_do(add_field, fields, r->headers_out, NULL);
    apr_table_do(add_field, fields, r->err_headers_out, NULL);
    if (r->content_type)
        add_field(fields, "Content-Type", r->content_type);
    /* Of what a handler makes the end is seen, and mod_proxy says when a backend broke off (r->no_cache). */
    if (!apr_table_get(r->headers_out, "Content-Length"))
        add_field(fields, "Transfer-Encoding", "chunked");
    if (without("V2"))
        read_words(r, c->fill);
    pages = borrow(r);
    if (pages) {
        verbena_result result =
            verbena_fill_answer(pages, c->fill, r->status, (verbena_field *)fields->elts, fields->nelts);
        if (result == VERBENA_OK && verbena_fill_stamp(c->fill, c->stamp, sizeof c->stamp) < sizeof c->stamp)
            c->is_storable = 1;
        else
            say(r, APLOG_DEBUG, "not to be stored");
        give_back(pages, result);
    }
    if (c->is_storable && !without("V4")) {
        const char *fresh = says(r, "no-transform") ? FRESH ", no-transform" : FRESH;
        unset(r, "Cache-Control");
        unset(r, "Expires");
        unset(r, "Pragma");
        apr_table_setn(r->headers_out, "Cache-Control", fresh);
        /* A weak tag may stay the same over a change that matters here. */
        tag = apr_table_get(r->headers_out, "ETag");
        if (tag && tag[0] != '"')
            unset(r, "ETag");
    }
    return ap_pass_brigade(f->next, bb);
}

/* What its client gets: no copy of it is to be used without asking (P9), and what names dependencies was for the cache. */
static apr_status_t restore(ap_filter_t *f, apr_bucket_brigade *bb)
{
    request_rec *r = f->r;
    int no_transform = says(r, "no-transform"), no_store = says(r, "no-store"), is_private = says(r, "private");
    const char *const *name;
    ap_remove_output_filter(f);
    for (name = DEPENDENCIES; *name; name++)
        unset(r, *name);
    unset(r, "Cache-Control");
    unset(r, "Expires");
    apr_table_setn(r->headers_out, "Cache-Control",
                   apr_pstrcat(r->pool, no_store ? "no-store" : is_private ? "private, no-cache" : "no-cache",
                               no_transform ? ", no-transform" : "", NULL));
    return ap_pass_brigade(f->next, bb);
}

/* ---- Requests that write (V6). ---- */

static apr_status_t end_unknown(void *ctx)
{
    bracket *b = ctx;
    if (b->is_open) {
        b->is_open = 0;
        give_back(b->pages, verbena_update_end(b->pages, b->update, VERBENA_OUTCOME_UNKNOWN));
    }
    return APR_SUCCESS;
}

/* Whether the client may have the end of the answer. */
static int end(request_rec *r, bracket *b, int is_unknown)
{
    verbena_result result;
    if (!b->is_open)
        return 1;
    b->is_open = 0;
    result = verbena_update_end(b->pages, b->update, is_unknown ? VERBENA_OUTCOME_UNKNOWN : VERBENA_DONE);
    if (result != VERBENA_OK)
        say(r, APLOG_ERR, "an update could not be confirmed, its connection is closed without the end of the answer");
    give_back(b->pages, result);
    return result == VERBENA_OK || is_unknown;
}

/* What a server behind this one did not do, or did not say to its end. */
static int is_broken(request_rec *r, apr_bucket_brigade *bb)
{
    apr_bucket *e;
    if (r->no_cache && r->proxyreq)
        return 1;
    if (r->proxyreq && (r->status == HTTP_BAD_GATEWAY || r->status == HTTP_SERVICE_UNAVAILABLE ||
                        r->status == HTTP_GATEWAY_TIME_OUT))
        return 1;
    for (e = APR_BRIGADE_FIRST(bb); e != APR_BRIGADE_SENTINEL(bb); e = APR_BUCKET_NEXT(e))
        if (AP_BUCKET_IS_ERROR(e))
            return 1;
    return 0;
}

/* Holds a short answer as a whole and of a longer one what came last, until every home knows that the write is over. */
static apr_status_t hold(ap_filter_t *f, apr_bucket_brigade *bb)
{
    request_rec *r = f->r;
    bracket *b = f->ctx;
    apr_bucket *e;
    int is_whole = 0;
    apr_off_t length = 0;
    apr_status_t rv;
    for (e = APR_BRIGADE_FIRST(bb); e != APR_BRIGADE_SENTINEL(bb); e = APR_BUCKET_NEXT(e))
        is_whole = is_whole || APR_BUCKET_IS_EOS(e);
    rv = ap_save_brigade(f, &b->held, &bb, r->pool);
    if (rv != APR_SUCCESS)
        return rv;
    if (!is_whole) {
        apr_bucket_brigade *pass;
        apr_brigade_length(b->held, 1, &length);
        if (length <= HELD)
            return APR_SUCCESS;
        pass = b->held;
        b->held = NULL;
        e = APR_BRIGADE_LAST(pass);
        APR_BUCKET_REMOVE(e);
        b->held = apr_brigade_create(r->pool, r->connection->bucket_alloc);
        APR_BRIGADE_INSERT_TAIL(b->held, e);
        return ap_pass_brigade(f->next, pass);
    }
    if (!end(r, b, is_broken(r, b->held))) {
        apr_brigade_cleanup(b->held);
        r->connection->keepalive = AP_CONN_CLOSE;
        r->connection->aborted = 1;
        return APR_ECONNABORTED;
    }
    ap_remove_output_filter(f);
    bb = b->held;
    b->held = NULL;
    return ap_pass_brigade(f->next, bb);
}

static apr_status_t gathered(ap_filter_t *f, apr_bucket_brigade *bb, ap_input_mode_t mode, apr_read_type_e block,
                             apr_off_t bytes)
{
    apr_bucket_brigade *here = f->ctx;
    apr_bucket *until;
    apr_status_t rv;
    if (APR_BRIGADE_EMPTY(here)) {
        ap_remove_input_filter(f);
        return ap_get_brigade(f->next, bb, mode, block, bytes);
    }
    if (mode != AP_MODE_READBYTES)
        return APR_ENOTIMPL;
    rv = apr_brigade_partition(here, bytes, &until);
    if (rv != APR_SUCCESS && rv != APR_INCOMPLETE)
        return rv;
    while (!APR_BRIGADE_EMPTY(here) && APR_BRIGADE_FIRST(here) != until) {
        apr_bucket *e = APR_BRIGADE_FIRST(here);
        APR_BUCKET_REMOVE(e);
        APR_BRIGADE_INSERT_TAIL(bb, e);
    }
    return APR_SUCCESS;
}

/* Reads the beginning of the body, which the handler then gets. */
static int gather(request_rec *r)
{
    apr_bucket_brigade *here = apr_brigade_create(r->pool, r->connection->bucket_alloc);
    apr_bucket_brigade *bb = apr_brigade_create(r->pool, r->connection->bucket_alloc);
    apr_off_t length = 0, more;
    int is_whole = 0;
    if (!apr_table_get(r->headers_in, "Transfer-Encoding") && !apr_table_get(r->headers_in, "Content-Length"))
        return OK;
    while (!is_whole && length < GATHERED) {
        apr_bucket *e;
        apr_status_t rv = ap_get_brigade(r->input_filters, bb, AP_MODE_READBYTES, APR_BLOCK_READ, GATHERED - length);
        if (rv == APR_SUCCESS)
            rv = apr_brigade_length(bb, 1, &more);
        for (e = APR_BRIGADE_FIRST(bb); rv == APR_SUCCESS && e != APR_BRIGADE_SENTINEL(bb); e = APR_BUCKET_NEXT(e)) {
            is_whole = is_whole || APR_BUCKET_IS_EOS(e);
            rv = apr_bucket_setaside(e, r->pool);
            rv = rv == APR_ENOTIMPL ? APR_SUCCESS : rv;
        }
        if (rv != APR_SUCCESS)
            return ap_map_http_request_error(rv, HTTP_BAD_REQUEST);
        length += more;
        APR_BRIGADE_CONCAT(here, bb);
    }
    ap_add_input_filter("VERBENA_GATHERED", here, r, r->connection);
    return OK;
}

/* The first of all handlers. */
static int before_handlers(request_rec *r)
{
    dir_conf *conf = ap_get_module_config(r->per_dir_config, &verbena_module);
    int writes = conf->writes < 0 ? VERBENA_UNSAFE_METHODS : conf->writes;
    verbena_fill *fill;
    verbena_result result;
    bracket *b;
    int status;
    copy *c = copy_of(r);
    if (!settings.inner || r->main || is_bracketed(r) || without("V6"))
        return DECLINED;
    fill = fill_of(r, writes);
    if (fill ? verbena_fill_intent(fill) != VERBENA_WRITE
             : writes == VERBENA_NEVER || writes == VERBENA_ANNOUNCED ||
                   (writes != VERBENA_ALWAYS && (r->method_number == M_GET || r->method_number == M_OPTIONS)))
        return DECLINED;
    /* It writes whatever its method is: no copy of its answer. */
    if (c)
        c->is_storable = 0, c->fill = NULL;
    status = gather(r);
    if (status != OK)
        return status;
    b = apr_pcalloc(r->pool, sizeof *b);
    b->pages = borrow(r);
    if (!b->pages)
        return HTTP_SERVICE_UNAVAILABLE;
    result = verbena_update_begin(b->pages, NULL, 0, &b->update);
    if (result != VERBENA_OK) {
        say(r, APLOG_WARNING, "an update could not begin, and is answered 503");
        give_back(b->pages, result);
        apr_table_setn(r->err_headers_out, "Retry-After", "1");
        return HTTP_SERVICE_UNAVAILABLE;
    }
    b->is_open = 1;
    state_of(r)->bracket = b;
    apr_pool_cleanup_register(r->pool, b, end_unknown, apr_pool_cleanup_null);
    ap_add_output_filter("VERBENA_HOLD", b, r, r->connection);
    return DECLINED;
}

/* ---- The request's own wishes, which change nothing (as in the proxy). ---- */

static int before_cache(request_rec *r, int lookup)
{
    const char *control = apr_table_getm(r->pool, r->headers_in, "Cache-Control");
    state *s;
    (void)lookup;
    if (!settings.inner || r->main || r->method_number != M_GET ||
        (control && (ap_strcasestr(control, "no-store") || ap_strcasestr(control, "only-if-cached"))))
        return DECLINED;
    s = state_of(r);
    s->cache_control = control;
    s->pragma = apr_table_getm(r->pool, r->headers_in, "Pragma");
    apr_table_unset(r->headers_in, "Cache-Control");
    apr_table_unset(r->headers_in, "Pragma");
    return DECLINED;
}

static int behind_cache(request_rec *r)
{
    state *s = ap_get_module_config(r->request_config, &verbena_module);
    if (s && s->cache_control)
        apr_table_setn(r->headers_in, "Cache-Control", s->cache_control);
    if (s && s->pragma)
        apr_table_setn(r->headers_in, "Pragma", s->pragma);
    return DECLINED;
}

/* ---- Directives and the start. ---- */

static void *make_dir_conf(apr_pool_t *p, char *dir)
{
    dir_conf *conf = apr_pcalloc(p, sizeof *conf);
    (void)dir;
    conf->writes = -1;
    return conf;
}

static void *merge_dir_conf(apr_pool_t *p, void *base, void *add)
{
    dir_conf *conf = apr_pmemdup(p, add, sizeof *conf);
    if (conf->writes < 0)
        conf->writes = ((dir_conf *)base)->writes;
    return conf;
}

static const char *set_store(cmd_parms *cmd, void *dir, const char *name)
{
    const char *error = ap_check_cmd_context(cmd, GLOBAL_ONLY);
    (void)dir;
    settings.store = name;
    return error;
}

static const char *set_helper(cmd_parms *cmd, void *dir, const char *path)
{
    const char *error = ap_check_cmd_context(cmd, GLOBAL_ONLY);
    (void)dir;
    settings.socket = path;
    return error;
}

static const char *set_timeout(cmd_parms *cmd, void *dir, const char *number)
{
    const char *error = ap_check_cmd_context(cmd, GLOBAL_ONLY);
    (void)dir;
    settings.timeout_ms = atoi(number);
    return error ? error : settings.timeout_ms > 0 ? NULL : "VerbenaTimeout is a number of milliseconds above 0";
}

static const char *set_writes(cmd_parms *cmd, void *dir, const char *which)
{
    static const char *const names[] = {"unsafe-methods", "announced", "always", "never"};
    int at;
    (void)cmd;
    for (at = 0; at < 4; at++)
        if (!strcmp(which, names[at])) {
            ((dir_conf *)dir)->writes = at;
            return NULL;
        }
    return "VerbenaWrites is unsafe-methods, announced, always or never";
}

static const command_rec directives[] = {
    AP_INIT_TAKE1("VerbenaStore", set_store, NULL, RSRC_CONF, "The provider that keeps the copies: socache or disk"),
    AP_INIT_TAKE1("VerbenaHelper", set_helper, NULL, RSRC_CONF, "The socket of the helper of this machine"),
    AP_INIT_TAKE1("VerbenaTimeout", set_timeout, NULL, RSRC_CONF, "Milliseconds that the helper may take for a page"),
    AP_INIT_TAKE1("VerbenaWrites", set_writes, NULL, RSRC_CONF | ACCESS_CONF,
                  "Which requests write: unsafe-methods, announced, always or never"),
    {NULL},
};

static int before_config(apr_pool_t *config, apr_pool_t *log, apr_pool_t *temporary)
{
    (void)config, (void)log, (void)temporary;
    memset(&settings, 0, sizeof settings);
    settings.timeout_ms = TIMEOUT_MS;
    return OK;
}

static int after_config(apr_pool_t *config, apr_pool_t *log, apr_pool_t *temporary, server_rec *s)
{
    (void)config, (void)log, (void)temporary;
    if (!settings.store)
        return OK;
    settings.inner = ap_lookup_provider(CACHE_PROVIDER_GROUP, settings.store, "0");
    if (!settings.inner || settings.inner == &provider) {
        ap_log_error(APLOG_MARK, APLOG_CRIT, 0, s,
                     "VerbenaStore %s: there is no such store; load mod_cache_socache or mod_cache_disk", settings.store);
        return HTTP_INTERNAL_SERVER_ERROR;
    }
    return OK;
}

static void begin_child(apr_pool_t *p, server_rec *s)
{
    (void)s;
    connections.count = 0;
    apr_thread_mutex_create(&connections.lock, APR_THREAD_MUTEX_DEFAULT, p);
}

static void register_hooks(apr_pool_t *p)
{
    ap_register_provider(p, CACHE_PROVIDER_GROUP, "verbena", "0", &provider);
    ap_hook_pre_config(before_config, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_post_config(after_config, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_child_init(begin_child, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_quick_handler(before_cache, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_fixups(behind_cache, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_handler(before_handlers, NULL, NULL, APR_HOOK_REALLY_FIRST);
    /* mod_cache's own filter is of the type of the first, and added later: it comes behind it. */
    ap_register_output_filter("VERBENA_JUDGE", judge, NULL, AP_FTYPE_CONTENT_SET + 1);
    ap_register_output_filter("VERBENA_RESTORE", restore, NULL, AP_FTYPE_PROTOCOL - 1);
    /* Also for an answer that the server makes of an error, which leaves out all filters of contents. */
    ap_register_input_filter("VERBENA_GATHERED", gathered, NULL, AP_FTYPE_RESOURCE);
    ap_register_output_filter("VERBENA_HOLD", hold, NULL, AP_FTYPE_PROTOCOL + 5);
}

module AP_MODULE_DECLARE_DATA verbena_module = {
    STANDARD20_MODULE_STUFF, make_dir_conf, merge_dir_conf, NULL, NULL, directives, register_hooks, 0,
};
