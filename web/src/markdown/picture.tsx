/** A picture in an answer. One from elsewhere tells its server who is reading, so it waits for its reader's consent. */
import { Image } from "lucide";
import { useState } from "preact/hooks";
import { Icon } from "../ui/icon";
import { t } from "../words";

const INLINE = /^data:image\/(?:png|jpeg|gif|webp);base64,/i;

export function Picture({ href, alt }: { href: string; alt: string }) {
  const [isWanted, setWanted] = useState(false);
  const host = hostOf(href);
  if (INLINE.test(href)) return <img src={href} alt={alt} loading="lazy" decoding="async" />;
  if (!host) return <span class="picture-blocked">{alt || t().imageAlt}</span>;
  if (isWanted) return <img src={href} alt={alt} referrerpolicy="no-referrer" loading="lazy" decoding="async" />;
  return (
    <button type="button" class="picture-consent" onClick={() => setWanted(true)}>
      <Icon node={Image} />
      <span>
        {alt && <strong>{alt}</strong>} {t().loadImage(host)}
      </span>
    </button>
  );
}

/** The host of a picture that may be loaded: over HTTPS, and from nowhere that has a password in its address. */
function hostOf(href: string): string {
  try {
    const url = new URL(href);
    return url.protocol === "https:" && !url.username && !url.password ? url.host : "";
  } catch {
    return "";
  }
}
