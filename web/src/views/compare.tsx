/** Compare: one prompt, several models. */
import { Empty } from "../ui/empty";
import { ViewHeader } from "../ui/view-header";

export default function Compare(_: { id: string | null }) {
  return (
    <>
      <ViewHeader title="Compare" />
      <Empty title="Not there yet" text="Comparing models side by side is not part of this version." />
    </>
  );
}
