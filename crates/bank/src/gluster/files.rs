//! The steps on disk. Each leaves every file whole: a file is written beside its place and renamed.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::volfile::{self, Role};
use super::{GlusterError, GlusterPaths, TranslatorOptions, volume_of};

/// What a file that is being written ends with.
const NEW: &str = ".verbena-new";
/// Beside the notes: that the directory of filters was made here.
const MADE: &str = ".filter-made";

/// Counts changes of the disk, so that a test can end after any of them as a kill does.
#[derive(Debug)]
pub(super) struct Disk {
    left: usize,
}

impl Disk {
    fn unbounded() -> Self {
        Disk { left: usize::MAX }
    }

    fn step<T>(&mut self, place: &Path, change: impl FnOnce() -> std::io::Result<T>) -> Result<T, GlusterError> {
        let system = |error| GlusterError::System { place: place.to_owned(), error };
        self.left = self.left.checked_sub(1).ok_or_else(|| system(ErrorKind::Interrupted.into()))?;
        change().map_err(system)
    }

    /// Replaces a file, which keeps its owner and mode. `is_same` is asked last, right before the rename.
    fn replace(
        &mut self,
        place: &Path,
        text: &str,
        mode: u32,
        is_same: impl FnOnce() -> bool,
    ) -> Result<(), GlusterError> {
        let new = beside(place);
        self.step(&new, || {
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            match fs::metadata(place) {
                Ok(old) => {
                    fs::set_permissions(&new, old.permissions())?;
                    chown(&new, Some(old.uid()), Some(old.gid()))?;
                }
                Err(_) => fs::set_permissions(&new, fs::Permissions::from_mode(mode))?,
            }
            file.sync_all()
        })?;
        if !is_same() {
            _ = fs::remove_file(&new);
            let why = "glusterd wrote it anew at the same moment: run the command again".to_owned();
            return Err(GlusterError::Volfile { place: place.to_owned(), why });
        }
        self.step(place, || fs::rename(&new, place))
    }

    fn remove(&mut self, place: &Path) -> Result<(), GlusterError> {
        self.step(place, || match fs::remove_file(place) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
    }
}

fn beside(place: &Path) -> PathBuf {
    let mut name = place.as_os_str().to_owned();
    name.push(NEW);
    name.into()
}

/// Loads the translators: files that glusterd wrote, and those that it will write. `program` is what the filter runs.
pub fn enable(
    paths: &GlusterPaths,
    volume: &str,
    options: &TranslatorOptions,
    program: &Path,
) -> Result<Vec<PathBuf>, GlusterError> {
    for name in ["cmcache", "smcache"] {
        let place = paths.translator(name);
        if !place.is_file() {
            return Err(GlusterError::NoTranslator { place });
        }
    }
    enable_on(&mut Disk::unbounded(), paths, volume, options, program)
}

pub(super) fn enable_on(
    disk: &mut Disk,
    paths: &GlusterPaths,
    volume: &str,
    options: &TranslatorOptions,
    program: &Path,
) -> Result<Vec<PathBuf>, GlusterError> {
    let folder = paths.volume(volume)?;
    // All that can be refused is refused before anything is changed.
    let mut changes = vec![];
    for file in volfiles(&folder)? {
        if let Some(changed) = changed(&file, Some(options))? {
            changes.push((file, changed));
        }
    }
    if options.is_strong() {
        ping_timeout(volume, &folder)?;
    }
    let notes = paths.notes();
    disk.step(&notes, || fs::create_dir_all(&notes))?;
    disk.replace(&notes.join(volume), &options.text(), 0o600, || true)?;
    let filters = paths.filters();
    if !filters.is_dir() {
        disk.replace(&notes.join(MADE), "", 0o600, || true)?;
        disk.step(&filters, || fs::create_dir(&filters))?;
    }
    disk.replace(&paths.script(), &script(program), 0o755, || true)?;
    change_all(disk, changes)
}

/// Takes the translators out again, and all that [`enable`] made.
pub fn disable(paths: &GlusterPaths, volume: &str) -> Result<Vec<PathBuf>, GlusterError> {
    disable_on(&mut Disk::unbounded(), paths, volume)
}

pub(super) fn disable_on(disk: &mut Disk, paths: &GlusterPaths, volume: &str) -> Result<Vec<PathBuf>, GlusterError> {
    let folder = paths.volume(volume)?;
    let (notes, script) = (paths.notes(), paths.script());
    let (note, ending) = (notes.join(volume), notes.join(format!(".{volume}.ending")));
    // From here on the filter loads nothing any more.
    if note.exists() {
        disk.step(&note, || fs::rename(&note, &ending))?;
    }
    let mut changes = vec![];
    for file in volfiles(&folder)? {
        if let Some(changed) = changed(&file, None)? {
            changes.push((file, changed));
        }
    }
    let changed = change_all(disk, changes)?;
    for left in left_behind(&folder).into_iter().chain(left_behind(&notes)).chain(left_behind(&paths.filters())) {
        disk.remove(&left)?;
    }
    let mut others = fs::read_dir(&notes).into_iter().flatten().flatten();
    if !others.any(|entry| !entry.file_name().to_string_lossy().starts_with('.')) {
        disk.remove(&script)?;
        if notes.join(MADE).exists() {
            // Other filters keep it.
            let filters = paths.filters();
            disk.step(&filters, || Ok(_ = fs::remove_dir(&filters)))?;
            disk.remove(&notes.join(MADE))?;
        }
    }
    disk.remove(&ending)?;
    // It stays while other volumes have notes there.
    disk.step(&notes, || Ok(_ = fs::remove_dir(&notes)))?;
    Ok(changed)
}

/// What glusterd runs on a file that it has written: loads the translators if the volume is to have them.
pub fn filter(file: &Path) -> Result<bool, GlusterError> {
    let Some((state, volume)) = volume_of(file) else { return Ok(false) };
    let note = state.join("verbena-bank").join(volume);
    let options = match fs::read_to_string(&note) {
        Ok(text) => TranslatorOptions::parse(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(GlusterError::System { place: note, error }),
    };
    let Some(changed) = changed(file, Some(&options))? else { return Ok(false) };
    change_all(&mut Disk::unbounded(), vec![(file.to_owned(), changed)])?;
    Ok(true)
}

/// A file's new text, and what the file was when it was read.
struct Change {
    text: String,
    read: (u64, i64, i64),
}

fn changed(file: &Path, options: Option<&TranslatorOptions>) -> Result<Option<Change>, GlusterError> {
    let system = |error| GlusterError::System { place: file.to_owned(), error };
    let read = version(file).map_err(system)?;
    let text = fs::read_to_string(file).map_err(system)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let role = volfile::role(&name, &text);
    // Files of other roles never had them.
    if role == Role::Other {
        return Ok(None);
    }
    let new = match options {
        Some(options) => volfile::load(role, &text, options),
        None => volfile::unload(&text),
    };
    let new = new.map_err(|why| GlusterError::Volfile { place: file.to_owned(), why })?;
    Ok((new != text).then_some(Change { text: new, read }))
}

fn change_all(disk: &mut Disk, changes: Vec<(PathBuf, Change)>) -> Result<Vec<PathBuf>, GlusterError> {
    let mut changed = vec![];
    for (file, Change { text, read }) in changes {
        disk.replace(&file, &text, 0o600, || version(&file).is_ok_and(|now| now == read))?;
        changed.push(file);
    }
    Ok(changed)
}

fn version(file: &Path) -> std::io::Result<(u64, i64, i64)> {
    fs::metadata(file).map(|found| (found.ino(), found.mtime(), found.mtime_nsec()))
}

/// The graphs of a volume, in the order of their names.
pub(super) fn volfiles(folder: &Path) -> Result<Vec<PathBuf>, GlusterError> {
    let system = |error| GlusterError::System { place: folder.to_owned(), error };
    let mut found = vec![];
    for entry in fs::read_dir(folder).map_err(system)? {
        let place = entry.map_err(system)?.path();
        if place.extension().is_some_and(|ends| ends == "vol") {
            found.push(place);
        }
    }
    found.sort();
    Ok(found)
}

fn left_behind(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|place| place.to_string_lossy().ends_with(NEW)).collect()
}

fn ping_timeout(volume: &str, folder: &Path) -> Result<(), GlusterError> {
    /// How long the words of a silent brick are trusted.
    const TRUSTED: u64 = 2;
    for file in volfiles(folder)? {
        let text = fs::read_to_string(&file).map_err(|error| GlusterError::System { place: file.clone(), error })?;
        let seconds = volfile::option(&text, "ping-timeout").and_then(|seconds| seconds.parse().ok());
        if let Some(seconds) = seconds.filter(|seconds| *seconds <= TRUSTED) {
            return Err(GlusterError::PingTimeout { volume: volume.to_owned(), seconds });
        }
    }
    Ok(())
}

/// A program that is gone changes nothing: the volume's files are as glusterd wrote them then.
fn script(program: &Path) -> String {
    let program = program.display().to_string().replace('\'', "'\\''");
    format!(
        "#!/bin/sh\n# Written by `verbena bank gluster enable`; `verbena bank gluster disable` removes it.\n[ -x '{program}' ] || exit 0\nexec '{program}' bank gluster filter \"$1\"\n"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::volfile::tests::{BRICK_FILE, CLIENT_FILE};
    use super::*;

    struct Machine {
        _folder: tempfile::TempDir,
        root: PathBuf,
        paths: GlusterPaths,
    }

    impl Machine {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().to_owned();
            let paths = GlusterPaths { state: root.join("state"), library: root.join("lib") };
            for volume in ["v", "w"] {
                let vol = paths.state.join("vols").join(volume);
                fs::create_dir_all(&vol).unwrap();
                fs::write(vol.join("info"), "type=0\n").unwrap();
                fs::write(vol.join(format!("{volume}.tcp-fuse.vol")), CLIENT_FILE).unwrap();
                fs::write(vol.join(format!("trusted-{volume}.tcp-fuse.vol")), CLIENT_FILE).unwrap();
                fs::write(vol.join(format!("trusted-{volume}.tcp-gfproxy-fuse.vol")), CLIENT_FILE).unwrap();
                fs::write(vol.join(format!("{volume}.h.b-1.vol")), BRICK_FILE).unwrap();
                fs::set_permissions(vol.join(format!("{volume}.h.b-1.vol")), fs::Permissions::from_mode(0o640))
                    .unwrap();
            }
            fs::create_dir_all(paths.library.join("xlator/user")).unwrap();
            Machine { _folder: folder, root, paths }
        }

        /// All files and directories, with modes and bytes.
        fn all(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
            let mut found = BTreeMap::new();
            let mut folders = vec![self.root.clone()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap() {
                    let place = entry.unwrap().path();
                    let mode = fs::metadata(&place).unwrap().mode();
                    let bytes = if place.is_dir() { vec![] } else { fs::read(&place).unwrap() };
                    if place.is_dir() {
                        folders.push(place.clone());
                    }
                    found.insert(place, (mode, bytes));
                }
            }
            found
        }

        fn enable(&self, steps: usize, volume: &str) -> Result<Vec<PathBuf>, GlusterError> {
            enable_on(&mut Disk { left: steps }, &self.paths, volume, &options(), Path::new("/bin/verbena"))
        }

        fn disable(&self, steps: usize) -> Result<Vec<PathBuf>, GlusterError> {
            disable_on(&mut Disk { left: steps }, &self.paths, "v")
        }

        /// Every graph is one that glusterd can read: as it was, or loaded.
        fn check_graphs(&self) {
            for file in volfiles(&self.paths.state.join("vols/v")).unwrap() {
                let text = fs::read_to_string(&file).unwrap();
                let plain = volfile::unload(&text).unwrap();
                assert!(plain == CLIENT_FILE || plain == BRICK_FILE, "{file:?}: {text}");
            }
        }
    }

    fn options() -> TranslatorOptions {
        TranslatorOptions::new(&[("scheme", "strong".into()), ("daemons", "h:1".into())]).unwrap()
    }

    #[test]
    fn a_kill_after_any_step_leaves_nothing_that_disable_does_not_put_back() {
        let before = Machine::new();
        let names = |machine: &Machine| -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
            machine
                .all()
                .into_iter()
                .map(|(place, rest)| (place.strip_prefix(&machine.root).unwrap().to_owned(), rest))
                .collect()
        };
        let plain = names(&before);
        let mut is_whole = false;
        for enabled in 0..40 {
            let machine = Machine::new();
            is_whole = machine.enable(enabled, "v").is_ok();
            machine.check_graphs();
            for disabled in 0..40 {
                let ended = machine.disable(disabled).is_ok();
                machine.check_graphs();
                if ended {
                    break;
                }
                assert!(disabled < 39, "disable never ends");
            }
            assert_eq!(names(&machine), plain, "killed after {enabled} steps");
            if is_whole {
                break;
            }
        }
        assert!(is_whole, "enable never ends");
    }

    #[test]
    fn enable_again_completes_what_was_killed_and_says_what_it_changed() {
        let whole = Machine::new();
        assert_eq!(whole.enable(100, "v").unwrap().len(), 3);
        assert_eq!(whole.enable(100, "v").unwrap().len(), 0);
        let strip = |machine: &Machine| -> Vec<_> {
            machine
                .all()
                .into_iter()
                .map(|(place, rest)| (place.strip_prefix(&machine.root).unwrap().to_owned(), rest))
                .collect()
        };
        for steps in 0..40 {
            let machine = Machine::new();
            if machine.enable(steps, "v").is_ok() {
                return;
            }
            machine.enable(100, "v").unwrap();
            assert_eq!(strip(&machine), strip(&whole), "killed after {steps} steps");
        }
        panic!("enable never ends");
    }

    #[test]
    fn a_second_volume_keeps_the_filter_and_a_file_that_glusterd_writes_anew_is_loaded() {
        let machine = Machine::new();
        let (script, file) = (machine.paths.script(), machine.paths.state.join("vols/w/w.tcp-fuse.vol"));
        machine.enable(100, "v").unwrap();
        assert!(!filter(&file).unwrap(), "w is not enabled");
        machine.enable(100, "w").unwrap();
        machine.disable(100).unwrap();
        assert!(script.exists());
        let loaded = fs::read_to_string(&file).unwrap();
        fs::write(&file, CLIENT_FILE).unwrap();
        assert!(filter(&file).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), loaded);
        assert!(!filter(&file).unwrap() && !filter(Path::new("/etc/passwd")).unwrap());
        disable_on(&mut Disk::unbounded(), &machine.paths, "w").unwrap();
        assert!(!script.exists() && !machine.paths.filters().exists());
        assert!(!filter(&file).unwrap());
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_changes() {
        let machine = Machine::new();
        let file = machine.paths.state.join("vols/v/v.tcp-fuse.vol");
        fs::write(&file, CLIENT_FILE.replace("ping-timeout 42", "ping-timeout 2")).unwrap();
        let before = machine.all();
        let refused = |result: Result<Vec<PathBuf>, GlusterError>| result.unwrap_err().to_string();
        assert!(refused(machine.enable(100, "v")).contains("ping-timeout is 2 s"));
        assert!(refused(machine.enable(100, "../v")).contains("no volume"));
        assert!(refused(machine.enable(100, "x")).contains("no volume"));
        let program = Path::new("/bin/verbena");
        assert!(refused(enable(&machine.paths, "v", &options(), program)).contains("make -C adapters/gluster install"));
        fs::write(&file, "nonsense\n    type protocol/client\n").unwrap();
        assert!(refused(machine.enable(100, "v")).contains("line 1"));
        fs::write(&file, CLIENT_FILE.replace("ping-timeout 42", "ping-timeout 2")).unwrap();
        assert_eq!(machine.all(), before);
        for (name, value) in [("daemons", ""), ("daemons", "h:1\noption x"), ("daemons", "h:1 h:2")] {
            assert!(TranslatorOptions::new(&[(name, value.to_owned())]).is_err());
        }
    }
}
