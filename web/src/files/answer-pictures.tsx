/** The pictures of an answer, each with a way to save it. */
import { Download } from "lucide";
import { Picture as FromElsewhere } from "../markdown/picture";
import { complain } from "../state/toasts";
import { Icon } from "../ui/icon";
import { Picture, REFERENCE } from "../ui/picture";
import { save } from "../ui/save";
import { v } from "../words/versions";
import { blobOf } from "./blob";

interface PicturesProps {
  urls: string[];
  session: string | null;
}

export default function AnswerPictures({ urls, session }: PicturesProps) {
  return (
    <div class="answer-pictures">
      {urls.map((url, index) =>
        isHere(url) ? (
          <figure key={index}>
            <Picture session={session} url={url} alt={v().pictureOfAnswer(index + 1)} />
            <button
              type="button"
              class="quiet icon-button"
              title={v().savePicture(index + 1)}
              aria-label={v().savePicture(index + 1)}
              onClick={() => savePicture(url, session, index + 1).catch(complain)}
            >
              <Icon node={Download} size={16} />
            </button>
          </figure>
        ) : (
          <FromElsewhere key={index} href={url} alt={v().pictureOfAnswer(index + 1)} />
        ),
      )}
    </div>
  );
}

const isHere = (url: string) => url.startsWith(REFERENCE) || url.startsWith("data:image/");

async function savePicture(url: string, session: string | null, n: number): Promise<void> {
  const blob = await blobOf(url, session);
  save(`picture-${n}.${blob.type.replace("image/", "").replace("jpeg", "jpg")}`, blob);
}
