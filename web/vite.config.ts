import { defineConfig, type Plugin } from "vite";

// Names without hashes: the built files are committed, and a test compares them byte by byte.
const names = {
  entryFileNames: "assets/[name].js",
  chunkFileNames: "assets/[name].js",
  assetFileNames: "assets/[name][extname]",
};

/** Every browser that runs this page reads WOFF2; KaTeX's two older formats of each font stay out of the package. */
const onlyWoff2: Plugin = {
  name: "only-woff2",
  enforce: "pre",
  transform(code, id) {
    if (!id.includes("katex") || !id.endsWith(".css")) return;
    return code.replace(/,\s*url\([^)]+\.(?:woff|ttf)\)\s*format\([^)]+\)/g, "");
  },
};

const MAIN = new URL("src/main.tsx", import.meta.url).pathname;
/** The name of the chunk that the page starts with. */
const START = "start";
/** What `main.tsx` imports, directly or not, but for what is loaded when it is needed. */
const atStart = new Set<string>();

/** One file has all of it: what a view has in common with the start is not cut out into small files. */
function chunkOf(id: string, context: { getModuleInfo(id: string): { importedIds: string[] } | null }): string | null {
  if (!atStart.size) {
    const ids = [MAIN];
    for (let next = ids.pop(); next; next = ids.pop()) {
      if (atStart.has(next)) continue;
      atStart.add(next);
      ids.push(...(context.getModuleInfo(next)?.importedIds ?? []));
    }
  }
  return id !== MAIN && atStart.has(id) ? START : null;
}

/** The styles of that file are those of the page. */
const ofThePage = {
  ...names,
  assetFileNames: (file: { names: string[] }) =>
    file.names.includes(`${START}.css`) ? "assets/index.css" : names.assetFileNames,
};

export default defineConfig({
  plugins: [onlyWoff2],
  build: {
    outDir: "../src/holdfast/web",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    cssCodeSplit: true,
    rolldownOptions: { output: { ...ofThePage, codeSplitting: { groups: [{ name: chunkOf }] } } },
    chunkSizeWarningLimit: 1000,
  },
  worker: { format: "es", rolldownOptions: { output: names } },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: { proxy: { "/api": "http://127.0.0.1:8000" } },
});
