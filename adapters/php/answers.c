/* An answer waits here until all that it is made of has been seen: the testimony stands in its head.
 *
 * PHP's own buffers are not used, because applications count and end them. What the server's functions would get is kept instead:
 *
 *   echo -> PHP's buffers -> ub_write, send_headers [held here] -> server
 *                                        | end of the request, fastcgi_finish_request(): all of it, with the testimony
 *                                        | flush(), more than HELD bytes: what there is, without one
 */

#include "module.h"

#include "ext/standard/head.h"

#define FIELD "Verbena-Complete"

static int (*send_headers)(sapi_headers_struct *headers);
static size_t (*ub_write)(const char *bytes, size_t length);
static void (*flush)(void *context);
static zif_handler finish;

static int held_headers(sapi_headers_struct *headers)
{
    if (!VERBENA(is_held))
        return send_headers(headers);
    VERBENA(has_head) = true;
    /* PHP frees it now. */
    VERBENA(status_line) = headers->http_status_line ? estrdup(headers->http_status_line) : NULL;
    return SAPI_HEADER_SENT_SUCCESSFULLY;
}

static size_t held_write(const char *bytes, size_t length)
{
    if (!VERBENA(is_held))
        return ub_write(bytes, length);
    smart_str_appendl(&VERBENA(body), bytes, length);
    if (ZSTR_LEN(VERBENA(body).s) > HELD) {
        verbena_outside("more bytes than are held", NULL);
        verbena_release(false);
    }
    return length;
}

static void held_flush(void *context)
{
    /* The application wants its client to see this before the rest is made. */
    if (VERBENA(is_held) && VERBENA(has_head)) {
        verbena_outside("flush", NULL);
        verbena_release(false);
    }
    if (flush && !VERBENA(is_held))
        flush(context);
}

static void testify(bool whole)
{
    char line[sizeof FIELD + sizeof VERBENA(outside) + 32];
    sapi_header_line header = {0};
    zend_uchar was_sent = SG(headers_sent);
    if (whole && !VERBENA(outside)[0])
        header.line_len = snprintf(line, sizeof line, FIELD ": %s", VERBENA(tag));
    else
        header.line_len = snprintf(line, sizeof line, FIELD ": no;by=\"%s\"", VERBENA(outside));
    header.line = line;
    /* PHP believes that the head is gone, and it is here. */
    SG(headers_sent) = 0;
    sapi_header_op(SAPI_HEADER_REPLACE, &header);
    SG(headers_sent) = was_sent;
}

static bool has_field(const char *name, size_t length)
{
    zend_llist_position at;
    sapi_header_struct *header = zend_llist_get_first_ex(&SG(sapi_headers).headers, &at);
    for (; header; header = zend_llist_get_next_ex(&SG(sapi_headers).headers, &at))
        if (header->header_len > length && header->header[length] == ':' && !strncasecmp(header->header, name, length))
            return true;
    return false;
}

/* All of it is here. Servers and caches before this one keep what has a length more gladly. */
static void add_length(size_t length)
{
    char line[64];
    sapi_header_struct header;
    int code = SG(sapi_headers).http_response_code;
    if (SG(request_info).headers_only || (code && code < 200) || code == 204 || code == 304 ||
        has_field(ZEND_STRL("Content-Length")) || has_field(ZEND_STRL("Transfer-Encoding")))
        return;
    /* Not by sapi_header_op, which would change a setting of zlib's for it, and warn that it cannot. */
    header.header_len = snprintf(line, sizeof line, "Content-Length: %zu", length);
    header.header = estrndup(line, header.header_len);
    if (!sapi_module.header_handler || (SAPI_HEADER_ADD & sapi_module.header_handler(&header, SAPI_HEADER_ADD, &SG(sapi_headers))))
        zend_llist_add_element(&SG(sapi_headers).headers, &header);
    else
        efree(header.header);
}

void verbena_release(bool whole)
{
    smart_str body = VERBENA(body);
    if (!VERBENA(is_held))
        return;
    VERBENA(is_held) = false;
    memset(&VERBENA(body), 0, sizeof VERBENA(body));
    testify(whole);
    if (VERBENA(has_head)) {
        if (whole)
            add_length(body.s ? ZSTR_LEN(body.s) : 0);
        SG(sapi_headers).http_status_line = VERBENA(status_line);
        send_headers(&SG(sapi_headers));
        if (VERBENA(status_line))
            efree(VERBENA(status_line));
        SG(sapi_headers).http_status_line = NULL;
        VERBENA(status_line) = NULL;
    }
    if (body.s) {
        if (!SG(request_info).headers_only)
            ub_write(ZSTR_VAL(body.s), ZSTR_LEN(body.s));
        smart_str_free(&body);
    }
}

/* fastcgi_finish_request(): what comes behind it reaches no client. */
static ZEND_FUNCTION(verbena_finish)
{
    if (VERBENA(is_held)) {
        php_output_end_all();
        php_header();
        verbena_release(true);
    }
    finish(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

void verbena_hook_answers(void)
{
    zend_function *function;
    if (!sapi_module.send_headers || !sapi_module.ub_write)
        return;
    send_headers = sapi_module.send_headers;
    ub_write = sapi_module.ub_write;
    flush = sapi_module.flush;
    sapi_module.send_headers = held_headers;
    sapi_module.ub_write = held_write;
    sapi_module.flush = held_flush;
    function = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("fastcgi_finish_request"));
    if (function && function->type == ZEND_INTERNAL_FUNCTION) {
        finish = function->internal_function.handler;
        function->internal_function.handler = ZEND_FN(verbena_finish);
    }
}
