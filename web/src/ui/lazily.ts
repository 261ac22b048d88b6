/** Loads parts of the page when they are needed, again if a request was lost: on the networks of phones one often is. */

const TRIES = 6;
const PAUSE = 500;

/** What `load` resolves to. Rejects when the part could not be had several times, half a minute in all. */
export async function lazily<T>(load: () => Promise<T>): Promise<T> {
  addEventListener("error", noteLost, true);
  for (let tried = 1; ; tried++) {
    try {
      await mendStyles();
      return await load();
    } catch (error) {
      if (tried === TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, PAUSE * 2 ** (tried - 1)));
    }
  }
}

/** Load again the styles that did not come. The bundler's own loader asks for each only once. */
async function mendStyles(): Promise<void> {
  const links = [...document.querySelectorAll<HTMLLinkElement>("link[rel=stylesheet]")];
  await Promise.all(links.filter((link) => lost.has(link)).map(mend));
}

const lost = new WeakSet<EventTarget>();

function noteLost({ target }: Event): void {
  if (target instanceof HTMLLinkElement) lost.add(target);
}

function mend(link: HTMLLinkElement): Promise<void> {
  return new Promise((resolve, reject) => {
    const fresh = link.cloneNode() as HTMLLinkElement;
    fresh.onload = () => resolve();
    fresh.onerror = () => reject(new Error(`${link.href} could not be loaded`));
    link.replaceWith(fresh);
  });
}
