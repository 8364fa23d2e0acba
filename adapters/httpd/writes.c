/* Requests that write: an update is open from before the first handler until the end of the answer (V6). */

#include "module.h"

APLOG_USE_MODULE(verbena);

/* Bytes of an answer that are held as a whole. Of a longer one the last piece is. */
#define HELD (64 * 1024)
/* Bytes of a body that are here before its update begins: a client that sends slowly keeps nobody's pages out of the cache. */
#define GATHERED (64 * 1024)

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
apr_status_t hold(ap_filter_t *f, apr_bucket_brigade *bb)
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

apr_status_t gathered(ap_filter_t *f, apr_bucket_brigade *bb, ap_input_mode_t mode, apr_read_type_e block,
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

int before_handlers(request_rec *r)
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
    /* A head that is not fit for a cache may be of any write. */
    result = fill ? verbena_update_begin_for(b->pages, fill, &b->update) : verbena_update_begin(b->pages, NULL, 0, &b->update);
    if (result != VERBENA_OK) {
        say(r, APLOG_WARNING, "an update could not begin, and is answered 503");
        give_back(b->pages, result);
        apr_table_setn(r->err_headers_out, "Retry-After", "1");
        return HTTP_SERVICE_UNAVAILABLE;
    }
    b->is_open = 1;
    state_of(r)->bracket = b;
    apr_pool_cleanup_register(r->pool, b, end_unknown, apr_pool_cleanup_null);
    ap_add_output_filter("VERBENA_RESTORE", NULL, r, r->connection);
    ap_add_output_filter("VERBENA_HOLD", b, r, r->connection);
    return DECLINED;
}
