// BullMQ on Node: the worker, and the enqueueing process, each by its first argument.
// It runs in the folder that BullMQ was installed into, and says what it found as the Python roles do.

import fs from 'node:fs';
import { Queue, Worker } from 'bullmq';

const url = new URL(process.env.PENSTOCK_BENCH_URL);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const CHUNK = 10000;
const [role, given] = process.argv.slice(2);
const asked = JSON.parse(given ?? '{}');
const seconds = () => Number(process.hrtime.bigint()) / 1e9;
const pause = (length) => new Promise((wake) => setTimeout(wake, length * 1000));

function work() {
  const marks = fs.openSync(process.env.PENSTOCK_BENCH_MARKS, 'a');
  const handle = async (job) => {
    if (job.name === 'noop') fs.writeSync(marks, '.');
    else fs.writeSync(marks, `${process.hrtime.bigint() - BigInt(job.data.n)}\n`);
  };
  const worker = new Worker('bench', handle, { connection, concurrency: 100 });
  process.on('SIGTERM', async () => {
    await worker.close();
    process.exit(0);
  });
}

async function fill(queue, { jobs }) {
  const jobsOf = (first, last) =>
    Array.from({ length: last - first }, (_, i) => ({ name: 'noop', data: { n: first + i } }));
  await queue.addBulk(jobsOf(0, 1));
  const start = seconds();
  for (let first = 1; first < jobs; first += CHUNK)
    await queue.addBulk(jobsOf(first, Math.min(jobs, first + CHUNK)));
  return { rate: (jobs - 1) / (seconds() - start) };
}

async function single(queue, { jobs, callers }) {
  const call = async (share) => {
    for (let n = 0; n < share; n += 1) await queue.add('noop', { n });
  };
  const all = (share) => Promise.all(Array.from({ length: callers }, () => call(share)));
  const share = Math.floor(jobs / callers);
  await all(1);
  const start = seconds();
  await all(share);
  return { rate: (share * callers) / (seconds() - start) };
}

async function send(queue, { samples, pause: length }) {
  for (let sample = 0; sample < samples; sample += 1) {
    await pause(length * (0.5 + Math.random()));
    await queue.add('stamped', { n: String(process.hrtime.bigint()) });
  }
  return {};
}

if (role === 'work') work();
else {
  const queue = new Queue('bench', { connection });
  await queue.waitUntilReady();
  console.log(JSON.stringify(await { fill, single, send }[role](queue, asked)));
  await queue.close();
}
