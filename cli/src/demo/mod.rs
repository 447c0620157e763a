//! `iceferry demo`: a small orders table, a job, and both tables side by side.
//!
//! The source is a table of a hadoop catalog in the demo's folder, written by iceferry's own stage and commit steps as a
//! writer with upserts would: data files, and equality deletes for what was updated or deleted.

mod context;
mod orders;
mod show;
mod source;

use std::path::{Path, PathBuf};

use iceferry_common::fault::Class;
use iceferry_coordinator::catalog;
use iceferry_coordinator::distribute::DistributeConfig;
use iceferry_coordinator::job::{Outcome, RunReport};
use serde::Serialize;

use crate::args::{Capacity, DemoArgs, Output};
use crate::failure::Failure;
use crate::output;
use crate::verbs;
use orders::Commit;
use source::Source;

/// What a demo did, for `--output json`.
#[derive(Debug, Serialize)]
struct Demo {
    job_file: PathBuf,
    source_snapshots: usize,
    run: RunReport,
    rows: usize,
    equal: bool,
}

pub(crate) async fn demo(args: &DemoArgs, output: Output) -> Result<(), Failure> {
    let folder = absolute(&args.dir)?;
    let job_path = folder.join("job.yaml");
    let commits = prepare(&folder, &job_path, args.more).await?;
    let job = verbs::job_file(&job_path)?;
    if output == Output::Text {
        for commit in &commits {
            println!("source: {commit}");
        }
        println!("\n$ iceferry run {}", shown(&args.dir.join("job.yaml")));
    }
    let capacity = Capacity { slots: Some(2), memory_mb: None };
    let run = verbs::run_job(job.clone(), capacity, DistributeConfig::default(), output).await?;
    let source = show::rows(&load(&job.source).await?).await?;
    let target = show::rows(&load(&job.target).await?).await?;
    let equal = source == target;
    let demo = Demo { job_file: job_path, source_snapshots: commits.len(), run, rows: source.rows.len(), equal };
    output::print(&demo, output, |demo| text(demo, &source, &target, args))?;
    if equal { Ok(()) } else { Err(Failure::new(Class::Bug, "source and target of the demo differ")) }
}

fn text(demo: &Demo, source: &show::Rows, target: &show::Rows, args: &DemoArgs) -> String {
    let mut text = output::run(&demo.run);
    text += &format!("\n{}", show::side_by_side(("shop.orders (source)", source), ("lake.orders (target)", target)));
    let verdict = if demo.equal { "equal" } else { "different" };
    text += &format!("\n{} rows on the left, {} on the right: {verdict}\n", source.rows.len(), target.rows.len());
    let carried = demo.run.outcome == Outcome::Applied;
    if demo.equal && carried {
        let dir =
            if args.dir == Path::new("iceferry-demo") { String::new() } else { format!(" --dir {}", shown(&args.dir)) };
        text += &format!("next: iceferry demo --more{dir}, which changes the source and carries only the changes\n");
    }
    text
}

/// Makes the demo's folder with its source and job file, or adds to the source that is there.
async fn prepare(folder: &Path, job_path: &Path, more: bool) -> Result<Vec<Commit>, Failure> {
    let is_there = job_path.exists();
    if more && !is_there {
        let problem = format!("there is no demo in {}; run iceferry demo first", folder.display());
        return Err(Failure::new(Class::Config, problem));
    }
    if !more && is_there {
        let problem = format!(
            "there is a demo in {} already; run iceferry demo --more to go on with it, or remove the folder to begin anew",
            folder.display()
        );
        return Err(Failure::new(Class::Config, problem));
    }
    let source = Source::open(folder).await?;
    let commits = if more { orders::more(&show::rows(&source.table).await?) } else { orders::first() };
    source.write(&commits).await?;
    if !more {
        std::fs::write(job_path, orders::job_file(folder)).map_err(|error| {
            Failure::new(Class::Denied, format!("write {}: {error}; give a folder with --dir", job_path.display()))
        })?;
    }
    Ok(commits)
}

/// One side of a job, as both blocks of the job file have it.
trait Side {
    fn table(&self) -> iceberg::TableIdent;
    fn properties(&self) -> std::collections::HashMap<String, String>;
}

impl Side for iceferry_common::config::SourceSettings {
    fn table(&self) -> iceberg::TableIdent {
        self.table.ident()
    }
    fn properties(&self) -> std::collections::HashMap<String, String> {
        self.catalog_properties.expose()
    }
}

impl Side for iceferry_common::config::TargetSettings {
    fn table(&self) -> iceberg::TableIdent {
        self.table.ident()
    }
    fn properties(&self) -> std::collections::HashMap<String, String> {
        self.catalog_properties.expose()
    }
}

async fn load(side: &impl Side) -> Result<catalog::LoadedTable, Failure> {
    let catalog = catalog::open(&side.properties()).await?;
    Ok(catalog.load_table(&side.table()).await?)
}

fn absolute(folder: &Path) -> Result<PathBuf, Failure> {
    let absolute = std::path::absolute(folder);
    absolute.map_err(|error| Failure::new(Class::Config, format!("--dir {}: {error}", folder.display())))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
