<?php
// What the tests ask for: `what` is a way to make a page, `id` a product.
$what = $_GET['what'] ?? '';
$id = (int) ($_GET['id'] ?? 1);
header('X-Of: ' . $what);

function with_mysqli() {
    [$host, $port] = explode(':', getenv('RELAY'));
    mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
    return new mysqli($host, 'shop', 'secret', 'shop', (int) $port);
}

function with_pdo($emulates) {
    [$host, $port] = explode(':', getenv('RELAY'));
    return new PDO("mysql:host=$host;port=$port;dbname=shop", 'shop', 'secret', [PDO::ATTR_EMULATE_PREPARES => $emulates]);
}

switch ($what) {
case 'mysqli':
    $row = with_mysqli()->query("SELECT id, name, price FROM products WHERE id = $id")->fetch_row();
    break;
case 'prepared':
    $database = with_mysqli();
    $statement = $database->prepare('SELECT id, name, price FROM products WHERE id = ?');
    $statement->bind_param('i', $id);
    $statement->execute();
    $row = $statement->get_result()->fetch_row();
    break;
case 'pdo':
case 'pdo-prepared':
    $statement = with_pdo($what == 'pdo')->prepare('SELECT id, name, price FROM products WHERE id = :id');
    $statement->bindValue('id', $id, PDO::PARAM_INT);
    $statement->execute();
    $row = $statement->fetch(PDO::FETCH_NUM);
    break;
case 'note':
    // A row, and a file beside the database.
    $row = with_mysqli()->query("SELECT id, name, price FROM products WHERE id = $id")->fetch_row();
    $row[] = trim(file_get_contents(sys_get_temp_dir() . '/note-' . $_GET['of']));
    break;
case 'status':
    header('HTTP/1.1 410 Gone Away');
    break;
case 'redirect':
    header('Location: /elsewhere');
    exit;
case 'apcu':
    // Also where it is called by another function.
    if (function_exists('apcu_fetch')) array_map('apcu_fetch', ['a']); else sys_getloadavg();
    break;
case 'file':
    file_get_contents('/etc/passwd');
    break;
case 'own':
    $row = [strlen(file_get_contents(__FILE__)) > 0, file_exists(__DIR__), include 'data.php'];
    break;
case 'dots':
    file_get_contents(__DIR__ . '/../../etc/passwd');
    break;
case 'look':
    file_exists('/etc/passwd');
    break;
case 'object':
    foreach (new SplFileObject('/etc/passwd') as $line) break;
    break;
case 'xml':
    $document = new DOMDocument;
    $document->loadXML('<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>', LIBXML_NOENT);
    break;
case 'http':
    @file_get_contents('http://127.0.0.1:1/');
    break;
case 'session':
    session_start();
    break;
case 'include':
    include '/etc/hostname';
    break;
case 'sqlite':
    try { new PDO('sqlite::memory:'); } catch (PDOException) {}
    break;
case 'flush':
    ob_end_flush();
    echo 'first';
    flush();
    file_get_contents('/etc/passwd');
    break;
case 'late':
    // Behind what PHP believes to be the head.
    ob_end_flush();
    echo 'first';
    file_get_contents('/etc/passwd');
    break;
case 'long':
    echo str_repeat('x', 9000000);
    break;
case 'forged':
    header('Verbena-Complete: 0123456789abcdef');
    file_get_contents('/etc/passwd');
    break;
case 'throws':
    file_get_contents('/etc/passwd');
    throw new Exception('it broke');
}
echo json_encode($row ?? $what);
