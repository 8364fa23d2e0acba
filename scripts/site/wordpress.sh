# WordPress for scripts/demo-site.sh and scripts/site/arms.sh: a copy of what Debian's package has (which reads its configuration in /etc), with a configuration of its own.

host=blog.example
package=wordpress

is_there() { [ -e /usr/share/wordpress/wp-load.php ] && [ -e /usr/share/wordpress/wp-content/themes/twentytwentyone ]; }
needs='wordpress and wordpress-theme-twentytwentyone'

write_configuration() {
    # It may be that of another copy.
    rm -f "$root/wp-config.php"
    cat >"$root/wp-config.php" <<PHP
<?php
define('DB_HOST', '$1');
define('DB_NAME', '${database:-blog}');
define('DB_USER', 'blog');
define('DB_PASSWORD', 'secret');
define('AUTH_KEY', 'one');
define('SECURE_AUTH_KEY', 'two');
define('LOGGED_IN_KEY', 'three');
define('NONCE_KEY', 'four');
define('AUTH_SALT', 'five');
define('SECURE_AUTH_SALT', 'six');
define('LOGGED_IN_SALT', 'seven');
define('NONCE_SALT', 'eight');
\$table_prefix = 'wp_';
// What is due is done by cron, not by a view: a view that writes is not stored, and calls the site itself.
define('DISABLE_WP_CRON', true);
define('WP_AUTO_UPDATE_CORE', false);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('WP_DEFAULT_THEME', 'twentytwentyone');
if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
PHP
}

install_site() {
    root=$directory/wordpress
    cp -rL /usr/share/wordpress "$root"
    sql -e "CREATE DATABASE blog CHARACTER SET utf8mb4; CREATE USER blog IDENTIFIED BY 'secret'; GRANT ALL ON blog.* TO blog;
        CREATE USER blog@localhost IDENTIFIED BY 'secret'; GRANT ALL ON blog.* TO blog@localhost"
    # Past the relay, which knows nothing of these tables yet.
    write_configuration "localhost:$directory/mysql.sock"
    # The checker comments faster than a person.
    mkdir -p "$root/wp-content/mu-plugins"
    echo "<?php add_filter('comment_flood_filter', '__return_false', 99); add_filter('pre_wp_mail', '__return_true');" >"$root/wp-content/mu-plugins/checked.php"
    cat >"$directory/install.php" <<PHP
<?php
\$_SERVER += ['HTTP_HOST' => '$host', 'REQUEST_URI' => '/', 'SERVER_NAME' => '$host', 'SERVER_PROTOCOL' => 'HTTP/1.1', 'REQUEST_METHOD' => 'GET'];
define('WP_INSTALLING', true);
require '$root/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install('Blog', 'admin', 'admin@$host', true, '', 'one of many words');
foreach (['comment_moderation' => 0, 'comment_previously_approved' => 0, 'comments_notify' => 0, 'moderation_notify' => 0, 'comment_max_links' => 0, 'posts_per_page' => 20] as \$name => \$value) update_option(\$name, \$value);
wp_insert_user(['user_login' => 'bob', 'user_pass' => 'words of bob', 'user_email' => 'bob@$host', 'role' => 'subscriber', 'display_name' => 'Bob-himself']);
for (\$nth = 0; \$nth < ${posts:-5}; \$nth++) echo wp_insert_post(['post_title' => "Post \$nth", 'post_content' => "version-0-of-\$nth", 'post_status' => 'publish', 'post_author' => 1]), "\\n";
PHP
    php "$directory/install.php" >"$directory/posts" 2>"$directory/install.log" ||
        fail "WordPress is not installed: $(tail -n 5 "$directory/install.log" "$directory/posts")"
    CHECKER="--posts $(grep -E '^[0-9]+$' "$directory/posts" | paste -sd,)"
}

configure_site() {
    root=${place:-$directory}/wordpress
    write_configuration "${server:-127.0.0.1:$relay}"
    code=$root
}

cron() { php "$root/wp-cron.php"; }

# For scripts/site/arms.sh.
original=blog
fill_site() { :; }

# The installed site once more, in $place. Its files are the same but for the configuration.
copy_site() {
    mkdir "$place"
    cp -al "$directory/wordpress" "$place"
}
