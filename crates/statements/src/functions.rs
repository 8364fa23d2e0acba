//! Functions and tables of the server itself (rule Q18).

use crate::planner::Named;
use crate::{Dialect, Product};

/// What a function does to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Its result depends on its arguments alone.
    Harmless,
    /// Likewise, on those of many rows.
    Aggregate,
    /// It says the time.
    Time,
    /// It says something else each time.
    Chance,
    /// It says something of the connection, its user or what was done on it.
    Connection,
    /// It says a setting of the session.
    Setting,
    /// `FOUND_ROWS()`.
    FoundRows,
    /// It is on no list.
    Unknown,
}

const HARMLESS: &str = "
    abs acos addtime age all any array array_append array_cat array_length array_position array_remove
    array_to_string array_upper ascii asin atan atan2 bin binary bit_count bit_length btrim cardinality cast ceil
    ceiling char char_length character_length chr coalesce coercibility concat concat_ws conv convert convert_from
    convert_to cos cot crc32 date_add date_bin date_format date_part date_sub date_trunc datediff day dayname
    dayofmonth dayofweek dayofyear decode degrees div elt encode exists exp extract extractvalue field find_in_set
    floor format from_base64 from_days from_unixtime glob greatest hex hour if ifnull iif inet6_aton inet6_ntoa
    inet_aton inet_ntoa initcap insert instr interval isnull json json_array json_array_length json_build_array
    json_build_object json_compact json_contains json_contains_path json_depth json_exists json_extract
    json_extract_path json_extract_path_text json_insert json_keys json_length json_object json_overlaps json_patch
    json_pretty json_quote json_remove json_replace json_search json_set json_type json_typeof json_unquote
    json_valid json_value jsonb jsonb_array_length jsonb_build_array jsonb_build_object jsonb_extract_path
    jsonb_extract_path_text jsonb_path_exists jsonb_path_query_first jsonb_set jsonb_typeof last_day lcase least
    left length likelihood likely ln locate log log10 log2 lower lpad ltrim make_date make_interval make_set
    makedate maketime md5 microsecond mid minute mod month monthname nullif oct octet_length ord period_add
    period_diff phraseto_tsquery pi plainto_tsquery position pow power printf quarter quote quote_ident
    quote_literal quote_nullable radians raise regexp_count regexp_instr regexp_like regexp_match regexp_replace
    regexp_split_to_array regexp_substr repeat replace reverse right round row rpad rtrim sec_to_time second
    setweight sha sha1 sha2 sha224 sha256 sha384 sha512 sign similarity sin some soundex space split_part sqrt
    str_to_date strcmp strpos substr substring substring_index subtime tan time_format time_to_sec timediff
    timestampadd timestampdiff to_base64 to_char to_date to_days to_hex to_json to_jsonb to_number to_seconds
    to_timestamp to_tsquery to_tsvector translate trim trunc truncate ts_headline ts_rank ts_rank_cd typeof ucase
    unhex unicode unlikely upper value values websearch_to_tsquery week weekday weekofyear weight_string
    width_bucket xor year yearweek
";

const AGGREGATES: &str = "
    any_value array_agg avg bit_and bit_or bit_xor bool_and bool_or corr count cume_dist dense_rank every
    first_value group_concat grouping json_agg json_arrayagg json_group_array json_group_object json_object_agg
    json_objectagg jsonb_agg jsonb_object_agg lag last_value lead max median min mode nth_value ntile percent_rank
    percentile_cont percentile_disc rank row_number std stddev stddev_pop stddev_samp string_agg sum total var_pop
    var_samp variance
";

const TIME: &str = "
    clock_timestamp convert_tz curdate current_date current_time current_timestamp curtime date datetime julianday
    localtime localtimestamp now statement_timestamp strftime sysdate time timediff timeofday timestamp timezone
    transaction_timestamp unix_timestamp unixepoch utc_date utc_time utc_timestamp
";

const CHANCE: &str = "
    gen_random_bytes gen_random_uuid nextval rand random random_bytes randomblob setseed sys_guid txid_current uuid
    uuid_generate_v4 uuid_short
";

const CONNECTION: &str = "
    benchmark changes col_description connection_id current_role current_setting current_user currval format_type
    get_lock has_table_privilege pg_advisory_lock_shared pg_advisory_unlock_all pg_advisory_unlock_shared
    pg_advisory_xact_lock_shared pg_try_advisory_lock_shared pg_try_advisory_xact_lock_shared is_free_lock is_used_lock last_insert_id last_insert_rowid lastval obj_description
    pg_advisory_lock pg_advisory_unlock pg_advisory_xact_lock pg_backend_pid pg_get_constraintdef pg_get_expr
    pg_get_indexdef pg_get_serial_sequence pg_get_userbyid pg_get_viewdef pg_is_in_recovery pg_sleep
    pg_table_is_visible pg_try_advisory_lock pg_try_advisory_xact_lock release_all_locks release_lock row_count
    session_user setval sleep system_user total_changes user
";

const SETTINGS: &str = "
    charset collation current_catalog current_database current_schema current_schemas database schema
    sqlite_source_id sqlite_version version
";

/// Variables that SET alone changes.
const VARIABLES: &str = "
    auto_increment_increment autocommit character_set_client character_set_connection character_set_database
    character_set_results character_set_server collation_connection collation_database collation_server
    default_storage_engine foreign_key_checks group_concat_max_len have_innodb init_connect interactive_timeout
    license lower_case_table_names max_allowed_packet net_buffer_length net_write_timeout performance_schema
    query_cache_size query_cache_type sql_auto_is_null sql_mode sql_safe_updates sql_select_limit storage_engine
    system_time_zone time_zone transaction_isolation transaction_read_only tx_isolation tx_read_only unique_checks
    version version_comment wait_timeout
";

/// Whether a variable of MySQL is changed by SET alone.
pub(crate) fn is_setting(variable: &[u8]) -> bool {
    is_in(VARIABLES, variable)
}

/// Whether a variable of MySQL is one of the whole server that SET GLOBAL alone changes, which touches everything.
pub(crate) fn is_global(variable: &[u8]) -> bool {
    is_in(GLOBALS, variable)
}

/// Variables that no session has of its own, and that SET GLOBAL alone changes.
const GLOBALS: &str = "
    read_only super_read_only
";

/// Names that are functions without parentheses.
const BARE: &str = "
    current_catalog current_date current_role current_schema current_time current_timestamp current_user localtime
    localtimestamp session_user utc_date utc_time utc_timestamp
";

/// Functions in the place of a table whose rows depend on their arguments alone.
const TABLES: &str = "
    generate_series json_array_elements json_array_elements_text json_each json_each_text json_table json_tree
    jsonb_array_elements jsonb_array_elements_text jsonb_each jsonb_each_text jsonb_object_keys
    regexp_split_to_table string_to_table unnest
";

/// Tables of PostgreSQL's catalog that change by DDL alone.
const PG_CATALOG: &str = "
    pg_am pg_attrdef pg_attribute pg_class pg_collation pg_constraint pg_description pg_enum pg_extension pg_index
    pg_indexes pg_inherits pg_namespace pg_opclass pg_operator pg_partitioned_table pg_proc pg_range pg_tables
    pg_trigger pg_type pg_views
";

/// Tables of the information schema that tell of the state of the server, not of the catalog.
const STATE: &str = "
    applicable_roles client_statistics enabled_roles files global_status global_variables index_statistics
    innodb_metrics innodb_trx partitions processlist profiling sequences session_status session_variables statistics
    system_variables table_statistics tables tablespaces user_statistics
";

/// Whether a list, with blanks between its names, has a name.
fn is_in(list: &str, name: &[u8]) -> bool {
    list.split_ascii_whitespace().any(|entry| entry.as_bytes().eq_ignore_ascii_case(name))
}

/// What a function does.
pub(crate) fn class(dialect: &Dialect, name: &[u8]) -> Class {
    let lists = [
        (TIME, Class::Time),
        (CHANCE, Class::Chance),
        (CONNECTION, Class::Connection),
        (SETTINGS, Class::Setting),
        (AGGREGATES, Class::Aggregate),
        (HARMLESS, Class::Harmless),
    ];
    if dialect.is_mysql() && is_in("found_rows", name) {
        return Class::FoundRows;
    }
    // `DATE(x)` is the day of x in MySQL; in SQLite the text may be 'now'.
    if dialect.is_mysql() && is_in("convert_tz date time timediff timestamp", name) {
        return Class::Harmless;
    }
    // With one argument it is the time since then.
    if dialect.is_postgres() && name.eq_ignore_ascii_case(b"age") {
        return Class::Time;
    }
    lists.iter().find(|(list, _)| is_in(list, name)).map_or(Class::Unknown, |(_, class)| *class)
}

/// Whether the answer of a query is made of many rows by this function.
pub(crate) fn is_aggregate(name: &[u8]) -> bool {
    is_in(AGGREGATES, name)
}

/// Whether a word without parentheses is a function.
pub(crate) fn is_bare(dialect: &Dialect, name: &[u8]) -> bool {
    is_in(BARE, name) || dialect.is_postgres() && name == b"user"
}

/// Whether a function gives rows that depend on its arguments alone.
pub(crate) fn is_table(name: &[u8]) -> bool {
    is_in(TABLES, name)
}

/// What a table of the server itself is.
pub(crate) fn system_table(dialect: &Dialect, database: &[u8], table: &[u8]) -> Named {
    let sqlite = dialect.product == Product::Sqlite;
    if sqlite && is_in("sqlite_master sqlite_schema", table) {
        return Named::Catalog;
    }
    let information = !sqlite && database.eq_ignore_ascii_case(b"information_schema");
    let postgres = dialect.is_postgres() && database == b"pg_catalog";
    let status = dialect.is_mysql() && is_in("performance_schema sys mysql", database);
    match () {
        () if information && is_in(STATE, table) && !dialect.is_postgres() => Named::Status,
        () if information && table.to_ascii_lowercase().starts_with(b"innodb") => Named::Status,
        () if information => Named::Catalog,
        () if postgres && is_in(PG_CATALOG, table) => Named::Catalog,
        () if postgres || status => Named::Status,
        () => Named::Unknown,
    }
}
