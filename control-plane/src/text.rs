// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words and times for people.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

pub(crate) use midwire_analysis::text::{Align, columns, span as time, times};

/// The word that JSON and plans have for a value of few.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Year, month, day of a number of days since 1970-01-01, in the proleptic Gregorian calendar.
fn civil(days: i64) -> (i64, u32, u32) {
    // Years begin in March here, so the leap day is the last of its year.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (
        year_of_era + era * 400 + i64::from(month <= 2),
        month as u32,
        day as u32,
    )
}

/// A time as UTC: for people and JSON, `2026-01-31T12:00:00.000Z`; for names, `20260131T120000Z`.
pub(crate) struct Utc(pub SystemTime);

impl Utc {
    fn parts(&self) -> (i64, u32, u32, u64, u64, u64, u32) {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs();
        let (year, month, day) = civil((seconds / 86_400) as i64);
        let of_day = seconds % 86_400;
        (
            year,
            month,
            day,
            of_day / 3600,
            of_day / 60 % 60,
            of_day % 60,
            since.subsec_millis(),
        )
    }

    pub fn text(&self) -> String {
        let (year, month, day, h, m, s, ms) = self.parts();
        format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{ms:03}Z")
    }

    pub fn name(&self) -> String {
        let (year, month, day, h, m, s, _) = self.parts();
        format!("{year:04}{month:02}{day:02}T{h:02}{m:02}{s:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_know_leap_years() {
        let text = |seconds| Utc(UNIX_EPOCH + Duration::from_secs(seconds)).text();
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(text(1_709_251_199), "2024-02-29T23:59:59.000Z");
        assert_eq!(text(1_735_689_600), "2025-01-01T00:00:00.000Z");
        assert_eq!(
            Utc(UNIX_EPOCH + Duration::from_secs(1_735_689_661)).name(),
            "20250101T000101Z"
        );
    }
}
