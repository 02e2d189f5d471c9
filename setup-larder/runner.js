// What the two steps share: inputs, the files by which a step talks to the runner, and commands.
// It uses nothing but Node.js, so the action has no dependencies that could change.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');

// Returns an input, or the empty text.
function input(name) {
    return (process.env[`INPUT_${name.toUpperCase()}`] || '').trim();
}

// Appends `NAME=value` to one of the runner's files: GITHUB_ENV, GITHUB_STATE or GITHUB_OUTPUT.
function tell(file, name, value) {
    if (/[\r\n]/.test(value)) {
        throw new Error(`the value of ${name} has more than one line`);
    }
    fs.appendFileSync(process.env[file], `${name}=${value}\n`);
}

// Puts a directory first in PATH, for this step and for later ones.
function addPath(directory) {
    process.env.PATH = `${directory}${path.delimiter}${process.env.PATH}`;
    fs.appendFileSync(process.env.GITHUB_PATH, `${directory}\n`);
}

// Runs a command with its output in the log of the job. Returns its exit code.
function run(program, ...words) {
    const { status, error } = spawnSync(program, words, { stdio: ['ignore', 'inherit', 'inherit'] });
    if (error) {
        throw error;
    }
    return status === null ? 1 : status;
}

// Returns the standard output of a command, or `null` if it failed.
function output(program, ...words) {
    const { status, stdout } = spawnSync(program, words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
    return status === 0 ? stdout : null;
}

function warn(text) {
    console.log(`::warning title=larder::${text.replace(/\n/g, ' ')}`);
}

// Returns the images of the input: path, key and fallback.
function images() {
    const lines = input('images').split('\n').map((line) => line.trim()).filter((line) => line !== '');
    return lines.map((line) => {
        // A key may contain spaces within {{…}}.
        const words = line.match(/(?:\{\{.*?\}\}|\S)+/g);
        if (words.length < 2 || words.length > 3) {
            throw new Error(`images: write PATH KEY [FALLBACK], not ${line}`);
        }
        const [directory, key, fallback] = words;
        return { directory, key, fallback };
    });
}

module.exports = { input, tell, addPath, run, output, warn, images };
