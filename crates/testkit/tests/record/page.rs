//! Opens the page of a record in a real browser. It must show the record's content, react to the
//! keyboard, and work in light and dark, with few and with many processes.

use std::path::PathBuf;

use larder_testkit::{Place, is_full, larder};

use crate::browser::Browser;
use crate::made;

fn page(place: &Place, processes: usize) -> PathBuf {
    let record = made::record(&place.path("tmp"), processes);
    let page = place.path(format!("tmp/page-{processes}.html"));
    let words = [larder().as_os_str(), "report".as_ref(), record.as_os_str(), "-o".as_ref(), page.as_os_str()];
    place.run(&words).run().ends(0);
    page
}

#[test]
fn it_shows_what_is_there_and_is_used_by_keyboard() {
    let place = Place::new();
    let page = page(&place, 1000);
    let Some(browser) = Browser::start(&place.path("tmp"), false) else { return };
    browser.open(&page);
    browser.wait("return document.documentElement.dataset.ready !== undefined");
    assert_eq!(browser.ask("return larder.timeline.count"), 1001);
    assert_eq!(browser.ask("return document.querySelector('.verdicts').textContent.includes('126 hit')"), true);
    // The canvas is not empty: it has dots of several colours.
    let colours = "const c = document.querySelector('#lanes'), s = new Set(); \
                   const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; \
                   for (let k = 0; k < d.length; k += 4) s.add(d[k] << 16 | d[k + 1] << 8 | d[k + 2]); return s.size";
    assert!(browser.ask(colours).as_u64() > Some(6));
    let flames = colours.replace("#lanes", "#flames");
    assert!(browser.ask(&flames).as_u64() > Some(3));

    browser.ask("document.querySelector('#lanes').focus()");
    let span = "return larder.timeline.to - larder.timeline.from";
    let whole = browser.ask(span).as_f64();
    browser.keys("++");
    assert!(browser.ask(span).as_f64() < whole);
    browser.keys("0nn");
    assert_eq!((browser.ask(span).as_f64(), browser.ask("return larder.timeline.chosen")), (whole, 1.into()));
    assert_eq!(browser.ask("return document.querySelector('#detail').textContent.includes('exit code 0')"), true);

    browser.ask("document.querySelector('#lanes').blur()");
    browser.keys("/file77.c");
    browser.wait("return document.querySelector('#found').textContent === '4 of 1001'");
    browser.ask("document.querySelector('#theme').click()");
    assert_eq!(browser.ask("return document.documentElement.dataset.theme"), "dark");
    browser.ask("document.querySelector('#kinds th:nth-child(2) button').click()");
    assert_eq!(
        browser.ask("return document.querySelector('#kinds th:nth-child(2)').getAttribute('aria-sort')"),
        "descending"
    );
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn dark_is_dark() {
    let place = Place::new();
    let page = page(&place, 40);
    let Some(browser) = Browser::start(&place.path("tmp"), true) else { return };
    browser.open(&page);
    browser.wait("return document.documentElement.dataset.ready !== undefined");
    if browser.ask("return matchMedia('(prefers-color-scheme: dark)').matches") != true {
        eprintln!("skipped: this browser cannot be told to prefer dark");
        return;
    }
    let paper = browser.ask("return getComputedStyle(document.body).backgroundColor");
    assert_eq!(paper, "rgb(20, 22, 26)");
    assert_eq!(browser.ask("return document.querySelector('#theme').textContent"), "Light");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// The longest time until a page of 10,000 processes is ready. This page has more.
const READY_MS_MAX: f64 = 2000.0;

#[test]
fn very_many_processes() {
    let place = Place::new();
    let processes = if is_full() { 100_000 } else { 20_000 };
    let page = page(&place, processes);
    let Some(browser) = Browser::start(&place.path("tmp"), false) else { return };
    // On a busy machine a single try may be too slow.
    let ready = || {
        browser.open(&page);
        browser.wait("return document.documentElement.dataset.ready !== undefined");
        browser.ask("return Number(document.documentElement.dataset.ready)").as_f64().expect("not a number")
    };
    let best = (0..3).map(|_| ready()).find(|ms| *ms < READY_MS_MAX);
    assert!(best.is_some() || is_full(), "in three tries the page was never ready within {READY_MS_MAX} ms");
    assert_eq!(browser.ask("return larder.timeline.count"), processes + 1);
    // Zooming in and out draws a frame for each key. How long a frame takes is measured elsewhere.
    browser.ask("document.querySelector('#lanes').focus()");
    for key in ["+", "+", "-", "-"] {
        // Keys that are pressed before the next frame share that frame.
        let drawn = browser.ask("return larder.timeline.frames.length");
        browser.keys(key);
        browser.wait(&format!("return larder.timeline.frames.length > {drawn}"));
    }
    let frames = browser.ask("return [document.documentElement.dataset.ready, Math.max(...larder.timeline.frames)]");
    eprintln!("{processes} processes: ready after {} ms, slowest frame {} ms", frames[0], frames[1]);
    assert_eq!(browser.complaints(), [""; 0]);
}
