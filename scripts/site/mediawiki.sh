# MediaWiki for scripts/demo-site.sh and scripts/site/arms.sh: what Debian's package has, run from where that puts it, with a configuration of its own.

host=wiki.example
root=/var/lib/mediawiki

is_there() { [ -e "$root/index.php" ] && [ -e "$root/maintenance/install.php" ]; }
package=mediawiki
needs=mediawiki

install_site() {
    sql -e "CREATE DATABASE wiki; CREATE USER wiki IDENTIFIED BY 'secret'; GRANT ALL ON wiki.* TO wiki; CREATE USER wiki@localhost IDENTIFIED BY 'secret'; GRANT ALL ON wiki.* TO wiki@localhost"
    mkdir "$directory/settings" "$directory/images" "$directory/cache" "$directory/tmp"
    # Past the relay, which knows nothing of these tables yet.
    php "$root/maintenance/install.php" --confpath "$directory/settings" --dbtype mysql --dbserver "localhost:$directory/mysql.sock" \
        --dbname wiki --dbuser wiki --dbpass secret --server "http://$host" --scriptpath "" --pass 'one of many words' --lang en \
        Wiki Admin >"$directory/install.log" 2>&1 || fail "MediaWiki is not installed: $(tail -n 5 "$directory/install.log")"
}

configure_site() {
    local place=${place:-$directory}
    cat >>"$place/settings/LocalSettings.php" <<PHP
# The relay is the database.
\$wgDBserver = "${server:-127.0.0.1:$relay}";
\$wgDBname = "${database:-wiki}";
# Anonymous views may be kept by a cache (they are "private" without it), by one that asks: there is nobody to be purged.
\$wgUseCdn = true;
\$wgCdnMaxAge = 31536000;
# Nothing is kept beside the database, and no view writes into it.
\$wgMainCacheType = CACHE_NONE;
\$wgParserCacheType = CACHE_NONE;
\$wgMessageCacheType = CACHE_NONE;
\$wgSessionCacheType = CACHE_DB;
\$wgLocalisationCacheConf['store'] = 'files';
\$wgCacheDirectory = "$place/cache";
# Jobs are run by cron, not at the end of a view.
\$wgJobRunRate = 0;
# The checker edits faster than a person.
\$wgRateLimits = [];
\$wgPingback = false;
# MediaWiki looks at /tmp otherwise, which is none of the program.
\$wgTmpDirectory = "$place/tmp";
# Nor is the place of the file that makes the wiki read-only.
\$wgReadOnlyFile = "$place/settings/read-only";
\$wgEnableUploads = true;
\$wgUploadDirectory = "$place/images";
\$wgUploadPath = "/images";
\$wgShowExceptionDetails = true;
PHP
    fpm_settings="env[MW_CONFIG_FILE] = $place/settings/LocalSettings.php"
    # Texts of messages are kept in files, which change with the program.
    code=$root:/usr/share/mediawiki:/etc/mediawiki:$place/settings:$place/cache
    application_settings="Alias /images $place/images"
}

# What a person has in cron.
cron() {
    MW_CONFIG_FILE="$directory/settings/LocalSettings.php" php "$root/maintenance/runJobs.php" --maxjobs 20
}

# For scripts/site/arms.sh: pages 0 to $1, each of which links to two others.
fill_site() {
    local nth files=()
    mkdir "$directory/pages"
    for ((nth = 0; nth < $1; nth++)); do
        echo "A page: version-0-of-$nth. It links to [[Page $(((nth + 1) % $1))]] and [[Page $(((nth + 2) % $1))]]." >"$directory/pages/Page $nth.txt"
        files+=("$directory/pages/Page $nth.txt")
    done
    MW_CONFIG_FILE="$directory/settings/LocalSettings.php" php "$root/maintenance/importTextFiles.php" "${files[@]}" >"$directory/fill.log" 2>&1 ||
        fail "there are no pages: $(tail -n 5 "$directory/fill.log")"
}
original=wiki

# The installed site once more, in $place.
copy_site() {
    mkdir "$place"
    cp -r "$directory/settings" "$directory/images" "$directory/cache" "$directory/tmp" "$place"
}

# Whole pages, in files, which an edit removes.
keep_own_pages() {
    mkdir "$place/pages"
    cat >>"$place/settings/LocalSettings.php" <<PHP
\$wgUseFileCache = true;
\$wgFileCacheDirectory = "$place/pages";
PHP
}
