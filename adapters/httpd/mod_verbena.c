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

#include "module.h"

module AP_MODULE_DECLARE_DATA verbena_module;
APLOG_USE_MODULE(verbena);

/* Connections to the helper that a process keeps when nobody uses them. */
#define IDLE 64
#define TIMEOUT_MS 100

server_settings settings;

#ifdef VERBENA_SWITCHES
int without(const char *rule)
{
    const char *off = getenv("VERBENA_WITHOUT");
    return off && strstr(off, rule);
}

/* Where a test has its files. */
static const char *in_test(request_rec *r, const char *name)
{
    const char *directory = getenv("VERBENA_SWITCHED");
    return directory ? apr_pstrcat(r->pool, directory, "/", name, NULL) : NULL;
}

static const char *beside(request_rec *r, const char *key)
{
    apr_ssize_t length = APR_HASH_KEY_STRING;
    return in_test(r, apr_psprintf(r->pool, "stamp-%08x", apr_hashfunc_default(key, &length)));
}

void keep_beside(request_rec *r, const char *key, const char *stamp)
{
    const char *path = beside(r, key);
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) {
        fputs(stamp, file);
        fclose(file);
    }
}

const char *kept_beside(request_rec *r, const char *key)
{
    char stamp[STAMP_BYTES] = "";
    const char *path = beside(r, key);
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file) {
        if (!fgets(stamp, sizeof stamp, file))
            stamp[0] = 0;
        fclose(file);
    }
    return stamp[0] ? apr_pstrdup(r->pool, stamp) : NULL;
}

void pause_at(request_rec *r, const char *what)
{
    const char *path = in_test(r, what), *here;
    apr_finfo_t found;
    FILE *file;
    if (!path || apr_stat(&found, path, APR_FINFO_TYPE, r->pool) != APR_SUCCESS)
        return;
    /* Only the first waits, and it says that it does. */
    here = apr_pstrcat(r->pool, path, "-here", NULL);
    if (apr_stat(&found, here, APR_FINFO_TYPE, r->pool) == APR_SUCCESS)
        return;
    if ((file = fopen(here, "w")))
        fclose(file);
    while (apr_stat(&found, path, APR_FINFO_TYPE, r->pool) == APR_SUCCESS)
        apr_sleep(10000);
}
#endif

/* ---- Connections: one for each thread that needs one at the moment. ---- */

static struct {
    apr_thread_mutex_t *lock;
    verbena_pages *idle[IDLE];
    int count;
} connections;

void say(request_rec *r, int level, const char *what)
{
    char words[512];
    verbena_last_error(words, sizeof words);
    ap_log_rerror(APLOG_MARK, level, 0, r, "verbena: %s: %s", what, words);
}

verbena_pages *borrow(request_rec *r)
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

void give_back(verbena_pages *pages, verbena_result last)
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

state *state_of(request_rec *r)
{
    state *found = ap_get_module_config(r->request_config, &verbena_module);
    if (!found) {
        found = apr_pcalloc(r->pool, sizeof *found);
        ap_set_module_config(r->request_config, &verbena_module, found);
    }
    return found;
}

copy *copy_of(request_rec *r)
{
    for (; r; r = r->prev) {
        state *found = ap_get_module_config(r->request_config, &verbena_module);
        if (found && found->copy)
            return found->copy;
    }
    return NULL;
}

int is_bracketed(request_rec *r)
{
    for (; r; r = r->prev) {
        state *found = ap_get_module_config(r->request_config, &verbena_module);
        if (found && found->bracket)
            return 1;
    }
    return 0;
}

int add_field(void *fields, const char *name, const char *value)
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

verbena_fill *fill_of(request_rec *r, int writes)
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

/* ---- The request's own wishes, which change nothing (as in the proxy). ---- */

static int before_cache(request_rec *r, int lookup)
{
    const char *control = apr_table_getm(r->pool, r->headers_in, "Cache-Control");
    state *s;
    (void)lookup;
    /* A proxy of ours says it to the application, and no client does. */
    if (settings.inner && !r->main)
        apr_table_unset(r->headers_in, "Verbena-Fill");
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
    static const char *const names[] = {"unsafe-methods", "announced", "always", "never", "database"};
    int at;
    (void)cmd;
    for (at = 0; at < 5; at++)
        if (!strcmp(which, names[at])) {
            ((dir_conf *)dir)->writes = at;
            return NULL;
        }
    return "VerbenaWrites is unsafe-methods, database, announced, always or never";
}

static const command_rec directives[] = {
    AP_INIT_TAKE1("VerbenaStore", set_store, NULL, RSRC_CONF, "The provider that keeps the copies: socache or disk"),
    AP_INIT_TAKE1("VerbenaHelper", set_helper, NULL, RSRC_CONF, "The socket of the helper of this machine"),
    AP_INIT_TAKE1("VerbenaTimeout", set_timeout, NULL, RSRC_CONF, "Milliseconds that the helper may take for a page"),
    AP_INIT_TAKE1("VerbenaWrites", set_writes, NULL, RSRC_CONF | ACCESS_CONF,
                  "Which requests write: unsafe-methods, database, announced, always or never"),
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
    if (!settings.inner || settings.inner == &copies) {
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
    ap_register_provider(p, CACHE_PROVIDER_GROUP, "verbena", "0", &copies);
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
    /* Behind the one that makes chunks, which is added when the head has gone by: a head that is held before it would become the first chunk. */
    ap_register_output_filter("VERBENA_HOLD", hold, NULL, AP_FTYPE_TRANSCODE + 1);
}

module AP_MODULE_DECLARE_DATA verbena_module = {
    STANDARD20_MODULE_STUFF, make_dir_conf, merge_dir_conf, NULL, NULL, directives, register_hooks, 0,
};
