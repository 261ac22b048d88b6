// Runs one client of the matrix: a task for each line of stdin, JSON lines as the answer, as ../python/run.py does.
//
//   node run.mjs DRIVER VARIANT       # the address and the key of the server are in HOLDFAST_URL and HOLDFAST_KEY

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [path, variant] = process.argv.slice(2);
const { HOLDFAST_URL: url, HOLDFAST_KEY: key } = process.env;
const write = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr); // clients print what they like
process.on("unhandledRejection", (error) => console.error(error)); // a client's own; what its caller learns is told below

class LeaveAsked extends Error {}

const tell = (said) => write(`${JSON.stringify(said)}\n`);
const driver = await import(pathToFileURL(path));

for await (const line of createInterface({ input: process.stdin })) {
  const task = JSON.parse(line);
  const leaving = new AbortController();
  const heard = (text) => {
    if (!text) return;
    tell({ piece: text });
    if (task.leave) {
      leaving.abort();
      throw new LeaveAsked();
    }
  };
  const at = { variant, url, key, v1: `${url}/v1`, prompt: "What is the wave?", picture: task.picture, heard };
  at.signal = leaving.signal;
  try {
    tell({ answer: (await driver[task.do](at, task.model, task.stream)) ?? null });
  } catch (error) {
    tell(leaving.signal.aborted ? { answer: null } : { raised: `${error}`.slice(0, 2000) });
  }
}
