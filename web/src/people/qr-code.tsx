/** A QR code, drawn from its rows: dark on white in every colour scheme, with the margin that cameras need. */
const MARGIN = 4;

export function QrCode({ rows, label }: { rows: string[]; label: string }) {
  const size = rows.length + 2 * MARGIN;
  const dark = rows.flatMap((row, y) =>
    [...row].flatMap((square, x) => (square === "1" ? [`M${x + MARGIN} ${y + MARGIN}h1v1h-1z`] : [])),
  );
  return (
    <svg class="qr-code" viewBox={`0 0 ${size} ${size}`} role="img" aria-label={label} shape-rendering="crispEdges">
      <rect width={size} height={size} fill="#fff" />
      <path d={dark.join("")} fill="#000" />
    </svg>
  );
}
