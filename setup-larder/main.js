// The first step of the action: installs larder, starts larderd, and restores images.
'use strict';

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const crypto = require('node:crypto');
const { spawnSync } = require('node:child_process');
const { input, tell, addPath, run, output, warn, images } = require('./runner.js');

// The release that this action belongs to.
const VERSION = '0.1.0';

// Downloads a file of the release.
async function download(url) {
    const answer = await fetch(url);
    if (!answer.ok) {
        throw new Error(`${url} cannot be downloaded: ${answer.status} ${answer.statusText}`);
    }
    return Buffer.from(await answer.arrayBuffer());
}

// Makes an empty directory. Its path is the same in each job, because PATH can be part of the key of
// a command.
function fresh(name) {
    const directory = path.join(process.env.RUNNER_TEMP || os.tmpdir(), name);
    fs.rmSync(directory, { recursive: true, force: true });
    fs.mkdirSync(directory, { recursive: true });
    return directory;
}

// Returns the directory with the programs. They are downloaded and verified, unless a directory was
// given.
async function install() {
    const given = input('binaries');
    if (given !== '') {
        return path.resolve(given);
    }
    const arch = { x64: 'x86_64', arm64: 'aarch64' }[process.arch];
    if (process.platform !== 'linux' || arch === undefined) {
        throw new Error(`there is no release for ${process.platform} on ${process.arch}`);
    }
    const version = input('version').replace(/^v/, '') || VERSION;
    const name = `larder-${version}-${arch}-linux`;
    const release = `${input('releases').replace(/\/$/, '')}/v${version}`;
    const [sums, archive] = await Promise.all(['SHA256SUMS', `${name}.tar.gz`].map((file) => download(`${release}/${file}`)));
    const line = sums.toString().split('\n').find((text) => text.endsWith(`  ${name}.tar.gz`));
    const found = crypto.createHash('sha256').update(archive).digest('hex');
    if (line === undefined || line.split(' ')[0] !== found) {
        throw new Error(`${name}.tar.gz does not have the sum that SHA256SUMS of ${release} says`);
    }
    const into = fresh('larder');
    const { status } = spawnSync('tar', ['-xzf', '-', '-C', into], { input: archive });
    if (status !== 0) {
        throw new Error(`${name}.tar.gz cannot be unpacked`);
    }
    return path.join(into, name);
}

// Makes links to larder with the names of the compilers along PATH, and puts them first in PATH.
function masquerade(directory) {
    const names = /^(?:[\w.]+-)*(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(?:-[\d.]+)?$/;
    const links = fresh('larder-links');
    const listed = process.env.PATH.split(path.delimiter).filter((entry) => path.isAbsolute(entry) && fs.existsSync(entry));
    for (const name of new Set(listed.flatMap((entry) => fs.readdirSync(entry)).filter((name) => names.test(name)))) {
        fs.symlinkSync(path.join(directory, 'larder'), path.join(links, name));
    }
    addPath(links);
}

async function main() {
    const directory = await install();
    addPath(directory);
    const larder = path.join(directory, 'larder');
    console.log(output(larder, 'version'));
    // Settings for later steps. The token of the cache is not among them: only larderd has it.
    const remote = input('remote');
    const settings = { LARDER_REMOTE: remote, LARDER_CLASS: input('class') };
    for (const [name, value] of Object.entries(settings).filter(([, value]) => value !== '')) {
        process.env[name] = value;
        tell('GITHUB_ENV', name, value);
    }
    run(larder, 'stats', '--zero');
    if (remote !== '' && run(larder, 'daemon', 'start', '--idle', '21600') !== 0) {
        warn('larderd did not start, so no results are shared: the log has the reason');
    }
    if (input('masquerade') === 'true') {
        masquerade(directory);
    }
    let exact = true;
    for (const [number, { directory: to, key, fallback }] of images().entries()) {
        const words = ['image', 'restore', '--replace', '--key', key];
        const code = run(larder, ...words, ...(fallback === undefined ? [] : ['--fallback', fallback]), to);
        exact = exact && code === 0;
        tell('GITHUB_STATE', `exact_${number}`, String(code === 0));
    }
    tell('GITHUB_OUTPUT', 'images-exact', String(exact));
    tell('GITHUB_STATE', 'larder', larder);
}

main().catch((error) => {
    console.log(`::error title=larder::${error.message}`);
    process.exitCode = 1;
});
