// Prints as JSON what reading hostile Markdown takes, in milliseconds of this process's own time: at once and as it is
// streamed, for a text and for one four times as long; and whether every character is still there.
import { registerHooks } from "node:module";
import { pathToFileURL } from "node:url";
import { families } from "./hostile_markdown.mjs";

registerHooks({
  resolve: (specifier, context, next) =>
    next(/^\.[^.]*$|^\.\.?\/[^.]*$/.test(specifier) ? `${specifier}.ts` : specifier, context),
});
const { Blocks } = await import(pathToFileURL(process.argv[2]).href);
const SIZE = Number(process.argv[3]);
const FRAMES = 8;
const A_MOMENT = 30; // milliseconds below which a measurement says nothing

const squeezed = (text) => text.replace(/\s/g, "");

function cost(work) {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

/** The cost, or the least of two tries if the first took longer: a collection of garbage in between says nothing. */
function least(work, enough) {
  const first = cost(work);
  return first <= enough ? first : Math.min(first, cost(work));
}

function stream(text) {
  const blocks = new Blocks();
  for (let frame = 1; frame <= FRAMES; frame++) blocks.read(text.slice(0, (text.length * frame) / FRAMES));
}

const found = {};
for (const [name, make] of Object.entries(families)) {
  const [short, long] = [make(SIZE), make(4 * SIZE)];
  const kept = squeezed(
    new Blocks()
      .read(short)
      .map(({ raw }) => raw)
      .join(""),
  );
  found[name] = {
    short: least(() => new Blocks().finish(short), A_MOMENT),
    long: least(() => new Blocks().finish(long), 4 * A_MOMENT),
    frame: cost(() => stream(long)) / FRAMES,
    isWhole: name.startsWith("def") || kept === squeezed(short),
  };
}
console.log(JSON.stringify(found));
