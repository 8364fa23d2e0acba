/* The provider: copies in another one, each with its stamp; and what mod_cache and clients see of them. */

#include "module.h"

APLOG_USE_MODULE(verbena);

/* The stamp's place in the head of a copy. Clients never see it. */
#define STAMP "Verbena-Stamp"
#define KEY_BYTES 33
/* What mod_cache believes of each copy: it is for this module to say that one is old (V4). */
#define FRESH "max-age=31536000"

/* The fields by which an application names what a page depends on. They are for caches. */
static const char *const DEPENDENCIES[] = {"Verbena-Dependencies", "Surrogate-Key", "Cache-Tag", "Cache-Groups", NULL};

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
    stamp = c && without("V1") ? kept_beside(r, c->key) : apr_table_get(h->resp_hdrs, STAMP);
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
    if (result == VERBENA_OK) {
        if (without("V1"))
            keep_beside(r, c->key, c->stamp);
        pause_at(r, "commit");
        return settings.inner->commit_entity(h, r);
    }
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

const cache_provider copies = {
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
apr_status_t judge(ap_filter_t *f, apr_bucket_brigade *bb)
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
apr_status_t restore(ap_filter_t *f, apr_bucket_brigade *bb)
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
