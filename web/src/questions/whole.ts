/** Whether all of a call was in view: one that is longer than its box has to be scrolled to its end. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export function useWholeCall() {
  const call = useRef<HTMLDivElement>(null);
  const [isSeen, setSeen] = useState(false);
  const look = () => {
    const box = call.current;
    if (box && box.clientHeight > 0 && box.scrollTop + box.clientHeight >= box.scrollHeight - 2) setSeen(true);
  };
  useLayoutEffect(() => {
    look();
    const resized = new ResizeObserver(look);
    if (call.current) resized.observe(call.current);
    return () => resized.disconnect();
  }, []);
  return { call, isSeen, look };
}
