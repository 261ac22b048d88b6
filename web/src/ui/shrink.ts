/** Photos, made small enough for a model and a mobile network before they are sent. */

/** Models look at no more pixels than this on the longer side. */
const LONGEST = 2048;
/** Bytes up to which a picture of that size is sent as it is. */
const SMALL = 1_500_000;
const QUALITY = 0.85;

/** A picture as it is sent: the very file where it is small. Throws where the browser cannot read it. */
export async function shrunk(file: File): Promise<Blob> {
  if (file.type === "image/gif" && file.size <= SMALL) return file; // it may move
  const picture = await createImageBitmap(file);
  try {
    const scale = Math.min(1, LONGEST / Math.max(picture.width, picture.height));
    if (scale === 1 && file.size <= SMALL) return file;
    return await drawn(picture, scale, file.type);
  } finally {
    picture.close();
  }
}

/** A screenshot keeps its sharp edges as PNG where that is small enough; anything else becomes a JPEG. */
async function drawn(picture: ImageBitmap, scale: number, type: string): Promise<Blob> {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(picture.width * scale));
  canvas.height = Math.max(1, Math.round(picture.height * scale));
  const pen = canvas.getContext("2d");
  if (!pen) throw new Error("no canvas");
  pen.imageSmoothingQuality = "high";
  pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
  if (type === "image/png") {
    const sharp = await encoded(canvas, "image/png");
    if (sharp.size <= SMALL) return sharp;
  }
  pen.globalCompositeOperation = "destination-over"; // a JPEG has no transparent places
  pen.fillStyle = "white";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  return encoded(canvas, "image/jpeg");
}

function encoded(canvas: HTMLCanvasElement, type: string): Promise<Blob> {
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), type, QUALITY);
  });
}
