//! Opening the one database, in a state where it can be trusted.

use crate::error::StoreError;
use crate::migrate;
use crate::place::Place;
use crate::retention::Limits;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The log is cut back to this many bytes after a checkpoint.
const WAL_KEPT: u32 = 4 << 20;

/// The open database. There is one for each state directory at a time: it is held exclusively.
#[derive(Debug)]
pub struct Store {
    pub(crate) db: Connection,
    pub(crate) limits: Limits,
    path: PathBuf,
}

impl Store {
    /// Verifies the state directory, opens or creates the database, checks its integrity and
    /// brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError`]: an unsafe place, damage, a foreign or newer file, another owner. In all of
    /// these the files are left as they were.
    pub fn open(dir: &Path, limits: Limits) -> Result<Self, StoreError> {
        let place = Place::prepare(dir, create)?;
        let path = place.database().to_owned();
        // No CREATE: the file was made, private, by `Place::prepare`. NOFOLLOW: see there.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let db = Connection::open_with_flags(&path, flags)?;
        let mut store = Self { db, limits, path };
        store.set_up().map_err(|e| store.located(e))?;
        place.verify()?;
        Ok(store)
    }

    fn set_up(&mut self) -> Result<(), StoreError> {
        let db = &mut self.db;
        db.busy_timeout(self.limits.takeover)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // Exclusive from the first read: a second store can't get in and sweep our running runs,
        // and the log's index is kept in memory instead of a shared file.
        db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        db.pragma_update(None, "cell_size_check", true)?;
        // Looked at before anything is written: a file that isn't ours stays untouched.
        let schema = check_identity(db, &self.path)?;
        check_integrity(db, &self.path)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.pragma_update(None, "foreign_keys", true)?;
        // What is evicted is gone from the file too.
        db.pragma_update(None, "secure_delete", true)?;
        db.pragma_update(None, "temp_store", "MEMORY")?;
        db.pragma_update(None, "journal_size_limit", WAL_KEPT)?;
        db.pragma_update(None, "max_page_count", self.limits.max_pages)?;
        db.set_prepared_statement_cache_capacity(64);
        if schema < migrate::latest() {
            if schema > 0 {
                keep_earlier(db, &self.path, schema)?;
            }
            migrate::up_to(db, migrate::latest())?;
        }
        Ok(())
    }

    /// The database file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Journal, locking, synchronous, foreign keys and secure delete as SQLite says they are.
    ///
    /// # Errors
    /// When SQLite doesn't answer.
    pub fn settings(&self) -> Result<[String; 5], StoreError> {
        let mut out = [
            "journal_mode",
            "locking_mode",
            "synchronous",
            "foreign_keys",
            "secure_delete",
        ]
        .map(str::to_owned);
        for setting in &mut out {
            *setting = self.db.pragma_query_value(None, setting, |row| {
                Ok(match row.get_ref(0)? {
                    rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                    other => other.as_str()?.to_owned(),
                })
            })?;
        }
        Ok(out)
    }

    /// A change that is on the disk when its commit returns.
    pub(crate) fn write(&mut self) -> Result<Transaction<'_>, StoreError> {
        Ok(self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)?)
    }

    /// A small change that outlives this process at once and a power cut only with the next
    /// [`Store::write`], whose sync covers it. It never tears or reorders.
    pub(crate) fn write_relaxed<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.db.pragma_update(None, "synchronous", "NORMAL")?;
        let done = self.write().and_then(|tx| {
            let value = change(&tx)?;
            tx.commit()?;
            Ok(value)
        });
        self.db.pragma_update(None, "synchronous", "FULL")?;
        done
    }

    /// Gives a finding of damage the path that the operator needs.
    fn located(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Corrupt { detail, .. } => StoreError::Corrupt {
                path: self.path.clone(),
                detail,
            },
            other => other,
        }
    }
}

/// Makes a database of ours without a schema from an empty file.
///
/// # Errors
/// When it can't be written.
pub fn create(path: &Path) -> Result<(), StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let db = Connection::open_with_flags(path, flags)?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "application_id", migrate::APPLICATION_ID)?;
    db.close().map_err(|(_, error)| error.into())
}

/// Returns the schema number of a database that is ours.
fn check_identity(db: &Connection, path: &Path) -> Result<u32, StoreError> {
    // SQLite takes an empty file for a new database; ours are never empty (`Place::prepare`).
    let pages: u64 = db.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    if pages == 0 {
        return Err(StoreError::Corrupt {
            path: path.to_owned(),
            detail: "the file is empty".into(),
        });
    }
    let found: i32 = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if found != migrate::APPLICATION_ID {
        let expected = migrate::APPLICATION_ID;
        return Err(StoreError::Foreign {
            path: path.to_owned(),
            found,
            expected,
        });
    }
    let schema = migrate::current(db)?;
    if schema > migrate::latest() {
        let known = migrate::latest();
        return Err(StoreError::Newer {
            path: path.to_owned(),
            found: schema,
            known,
        });
    }
    Ok(schema)
}

/// Where a database is kept as it was before the steps after `schema`.
#[must_use]
pub fn earlier(path: &Path, schema: u32) -> PathBuf {
    path.with_extension(format!("before-schema-{}.sqlite", schema + 1))
}

/// Keeps a copy of the database as it is, for who wants to go back to the earlier release. One that
/// is there already was complete when it got its name, and is older than a migration that failed.
fn keep_earlier(db: &Connection, path: &Path, schema: u32) -> Result<(), StoreError> {
    let kept = earlier(path, schema);
    if kept.exists() {
        return Ok(());
    }
    let begun = kept.with_extension("partial");
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::DiskFull,
        _ => StoreError::Copy {
            path: kept.clone(),
            error,
        },
    };
    match std::fs::remove_file(&begun) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    // Made here, so that it is private from the first byte; SQLite takes an empty file.
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&begun)
        .map_err(failed)?;
    db.execute("VACUUM INTO ?1", [begun.to_string_lossy()])?;
    let sync = |path: &Path| std::fs::File::open(path)?.sync_all();
    sync(&begun)
        .and_then(|()| std::fs::rename(&begun, &kept))
        .and_then(|()| sync(path.parent().unwrap_or(Path::new("/"))))
        .map_err(failed)?;
    tracing::info!(
        "the database of schema {schema} is kept as {}",
        kept.display()
    );
    Ok(())
}

fn check_integrity(db: &Connection, path: &Path) -> Result<(), StoreError> {
    let finding: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if finding == "ok" {
        return Ok(());
    }
    Err(StoreError::Corrupt {
        path: path.to_owned(),
        detail: finding,
    })
}
