//! `verbena wan show`: what links do.

use std::thread::sleep;

use clap::Args;
use verbena_terms::Lapse;

use super::control::{Answer, Name, Request};
use super::report::Report;
use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// Show what the links of a WAN that is up do: rates now, queues, drops by cause, and how long packets took.
///
/// Rates are those of the interval before they are printed; all other numbers count since the WAN came up.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena wan show
  verbena wan show sea --interval 5s --count 12
  verbena wan show --json | jq '.links[0].ways[0].dropped'")]
pub struct Command {
    /// Show only this link.
    #[arg(value_name = "LINK")]
    link: Option<String>,
    /// The time over which rates are measured.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(1), value_parser = Lapse::or_seconds)]
    interval: Lapse,
    /// How many times to print.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    format: Format,
}

impl Command {
    /// Prints it.
    pub fn run(self) -> Result<()> {
        let mut before = self.look()?;
        for _ in 0..self.count {
            sleep(self.interval.0);
            let now = self.look()?;
            let report = now.clone().since(&before);
            match self.format.json {
                true => write_json(&mut output(), &report)?,
                false => report.print(&mut output())?,
            }
            before = now;
        }
        Ok(())
    }

    fn look(&self) -> Result<Report> {
        let Answer::Report(report) = self.name.ask(&Request::Look)? else {
            return Err(Error::Refused {
                problem: "the process that keeps the WAN up is of another version".into(),
                exit_code: 1,
            });
        };
        match &self.link {
            Some(link) => Ok(report.only(link)?),
            None => Ok(report),
        }
    }
}
