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

export default defineConfig({
  plugins: [onlyWoff2],
  build: {
    outDir: "../src/holdfast/web",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    cssCodeSplit: true,
    rolldownOptions: { output: names },
    chunkSizeWarningLimit: 1000,
  },
  worker: { format: "es", rolldownOptions: { output: names } },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: { proxy: { "/api": "http://127.0.0.1:8000" } },
});
