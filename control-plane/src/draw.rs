// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What pictures of runs have in common.

use std::error::Error as StdError;

use plotters::chart::SeriesLabelStyle;
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

/// A picture as SVG.
pub(crate) type Drawn = Result<String, Box<dyn StdError>>;

/// Where is drawn.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Of all text.
pub(crate) const FONT: (&str, u32) = ("sans-serif", 14);

/// Of NICs, queue pairs and connections: told apart by those who do not see red and green as well
/// (Okabe and Ito).
pub(crate) const COLOURS: [RGBColor; 4] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
];

/// Draws a picture of so many pixels, and says in it which command did (without its options: a
/// comment of XML holds no `--`).
pub(crate) fn svg(
    size: (u32, u32),
    command: &str,
    draw: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn StdError>>,
) -> Drawn {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        draw(&root)?;
        root.present()?;
    }
    Ok(format!(
        "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->\n\
         <!-- Drawn by `{command}`; do not edit. -->\n{svg}"
    ))
}

/// A power of ten of nanoseconds.
pub(crate) fn decade(ns: &f64) -> String {
    match *ns {
        ns if ns < 1e3 => format!("{ns} ns"),
        ns if ns < 1e6 => format!("{} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{} ms", ns / 1e6),
        ns => format!("{} s", ns / 1e9),
    }
}

/// Says what is what, at a place.
pub(crate) fn legend<'a, C: CoordTranslate>(
    labels: &mut SeriesLabelStyle<'a, '_, SVGBackend<'a>, C>,
    place: SeriesLabelPosition,
) -> Result<(), Box<dyn StdError>> {
    labels
        .position(place)
        .background_style(WHITE.mix(0.8))
        .label_font(FONT)
        .draw()?;
    Ok(())
}
