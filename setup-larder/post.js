// The last step of the action: saves images, waits for uploads, and writes the summary of the job.
// It never fails a job, because the build has ended by then.
'use strict';

const fs = require('node:fs');
const { input, run, output, warn, images } = require('./runner.js');

// Returns microseconds as people write them.
function duration(us) {
    const s = Math.abs(us) / 1e6;
    const sign = us < 0 ? '-' : '';
    if (s < 60) {
        return `${sign}${s.toFixed(1)} s`;
    }
    return `${sign}${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
}

// Returns the summary of the counters as Markdown.
function summary(stats) {
    const asked = stats.hit + stats.miss;
    const rate = asked > 0 ? `${((stats.hit * 100) / asked).toFixed(1)} % of ${asked} looked up` : 'nothing was looked up';
    const lines = [
        '### larder',
        '',
        `**${stats.hit} hits**, ${rate}; ${stats.remote_hit} of them were downloaded. Saved **${duration(stats.saved_us)}** of the time that tools run.`,
        '',
    ];
    const families = Object.entries(stats.families);
    if (families.length > 0) {
        lines.push('| tool | hits | misses | saved |', '|---|---:|---:|---:|');
        for (const [name, { hit, miss, saved_us }] of families) {
            lines.push(`| ${name} | ${hit} | ${miss} | ${duration(saved_us)} |`);
        }
        lines.push('');
    }
    const reasons = ['bypass_reasons', 'unrecorded_reasons', 'fallback_reasons'].flatMap((table) => Object.entries(stats[table]));
    if (reasons.length > 0) {
        lines.push('| not cached, because | commands |', '|---|---:|');
        for (const [code, count] of reasons.sort((a, b) => b[1] - a[1])) {
            lines.push(`| \`${code}\` | ${count} |`);
        }
        lines.push('');
    }
    return lines.join('\n');
}

function main() {
    // Not by PATH: a step of the job can put another program of that name first, and this step has the
    // token of the cache.
    const larder = process.env.STATE_larder;
    if (!larder) {
        return;
    }
    // A step that failed may have left a directory half made, which later jobs would get as exact.
    const succeeded = ['', 'success'].includes(input('job-status'));
    for (const [number, { directory, key }] of succeeded ? images().entries() : []) {
        if (process.env[`STATE_exact_${number}`] === 'true' || !fs.existsSync(directory)) {
            continue;
        }
        if (run(larder, 'image', 'save', '--key', key, directory) !== 0) {
            warn(`${directory} was not saved: the log has the reason`);
        }
    }
    if (input('remote') !== '') {
        if (run(larder, 'remote', 'flush', '--timeout', input('flush-timeout') || '120') !== 0) {
            warn('not all results were uploaded: the log has the reason');
        }
    }
    const stats = output(larder, 'stats', '--json');
    if (stats !== null) {
        run(larder, 'stats');
        fs.appendFileSync(process.env.GITHUB_STEP_SUMMARY, `${summary(JSON.parse(stats))}\n`);
    }
    run(larder, 'daemon', 'stop');
}

try {
    main();
} catch (error) {
    warn(error.message);
}
