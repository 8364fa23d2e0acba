use super::*;

const NAMES: u64 = 7;
const DEAD: Incarnation = Incarnation::new(2, 5);

fn on(dependencies: &[u64]) -> Scope {
    Scope::of(dependencies.iter().copied().map(Dependency))
}

/// A directory in which this incarnation has begun.
fn begun() -> (tempfile::TempDir, OpenUpdates) {
    let directory = tempfile::tempdir().unwrap();
    let mut records = OpenUpdates::in_directory(directory.path().join("open-updates"));
    records.begin(DEAD, NAMES, &[]);
    (directory, records)
}

fn read(directory: &tempfile::TempDir, lease_is_over: bool) -> Recorded {
    OpenUpdates::in_directory(directory.path().join("open-updates")).read(DEAD, NAMES, lease_is_over)
}

fn is_unknown(recorded: &Recorded) -> bool {
    matches!(recorded, Recorded::Unknown(_))
}

#[test]
fn a_record_says_what_was_open_and_only_when_nothing_can_be_added() {
    let (directory, mut records) = begun();
    records.opened(0, &on(&[1, 2]));
    records.opened(1, &Scope::Everything);
    records.opened(2, &Scope::of((0..200).map(Dependency)));
    records.opened(3, &on(&[3]));
    records.ended(3);
    let open = Recorded::Open(vec![(0, on(&[1, 2])), (1, Scope::Everything), (2, Scope::All)]);
    assert_eq!(read(&directory, false), Recorded::InUse);
    assert_eq!(read(&directory, true), open);
    drop(records);
    assert_eq!(read(&directory, false), open, "its process is gone");
}

#[test]
fn a_later_incarnation_overwrites_nothing_and_goes_on_with_what_is_open() {
    let (directory, mut records) = begun();
    records.opened(4, &on(&[9]));
    let later = Incarnation::new(DEAD.rank.0, DEAD.start + 1);
    records.begin(later, NAMES, &[(4, on(&[9]))]);
    records.ended(4);
    assert_eq!(read(&directory, false), Recorded::Open(vec![(4, on(&[9]))]));
    let mut other = OpenUpdates::in_directory(directory.path().join("open-updates"));
    assert_eq!(other.read(later, NAMES, true), Recorded::Open(vec![]));
}

#[test]
fn slots_are_used_again_and_a_full_record_is_void() {
    let (directory, mut records) = begun();
    for number in 0..3 * MAX_OPEN_UPDATES as u64 {
        records.opened(number, &on(&[number]));
        records.ended(number);
    }
    assert_eq!(read(&directory, true), Recorded::Open(vec![]));
    (0..=MAX_OPEN_UPDATES as u64).for_each(|number| records.opened(number, &on(&[1])));
    assert!(is_unknown(&read(&directory, true)));
}

#[test]
fn a_record_that_is_not_sound_says_nothing() {
    type Damage = fn(&Path, &File);
    let damages: [(&str, Damage); 8] = [
        ("removed", |path, _| fs::remove_file(path).unwrap()),
        ("empty", |_, file| file.set_len(0).unwrap()),
        ("shortened", |_, file| file.set_len(END).unwrap()),
        ("shortened and grown again", |_, file| {
            file.set_len(HEAD as u64).and_then(|()| file.set_len(END + 8)).unwrap();
        }),
        ("of another boot", |_, file| file.write_all_at(&head(1, DEAD, NAMES), 0).unwrap()),
        ("of another incarnation", |_, file| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, 24).unwrap();
            file.write_all_at(&[bytes[0] ^ 1], 24).unwrap();
        }),
        ("a slot that is damaged", |_, file| file.write_all_at(&[9], HEAD as u64 + 24).unwrap()),
        ("a directory", |path, _| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let (directory, mut records) = begun();
        records.opened(1, &on(&[5]));
        assert_eq!(read(&directory, true), Recorded::Open(vec![(1, on(&[5]))]));
        let path = records.path(DEAD);
        damage(&path, &OpenOptions::new().read(true).write(true).open(&path).unwrap());
        assert!(is_unknown(&read(&directory, true)), "{what}");
        // The node goes on, and a damaged record does not become sound by it.
        records.opened(2, &on(&[6]));
        records.ended(1);
        records.ended(2);
        assert!(what.starts_with("a slot") || is_unknown(&read(&directory, true)), "{what}, later");
    }
}

#[test]
fn under_another_key_only_an_empty_record_counts() {
    let (directory, mut records) = begun();
    let mut other = OpenUpdates::in_directory(directory.path().join("open-updates"));
    assert_eq!(other.read(DEAD, NAMES + 1, true), Recorded::Open(vec![]));
    records.opened(1, &on(&[5]));
    assert!(is_unknown(&other.read(DEAD, NAMES + 1, true)));
}

#[test]
fn the_records_of_the_dead_go_when_no_view_names_them() {
    let (directory, mut records) = begun();
    let view = View::new(verbena_terms::ViewNumber(1), vec![], vec![]).unwrap();
    records.forget(&view);
    assert_eq!(read(&directory, true), Recorded::Open(vec![]), "its process is there");
    drop(records);
    OpenUpdates::in_directory(directory.path().join("open-updates")).forget(&view);
    assert!(is_unknown(&read(&directory, true)));
}
