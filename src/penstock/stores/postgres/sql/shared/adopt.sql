-- Adds children to parents that an earlier statement locked and that still wait. Items: parent, the child's queue, child.
INSERT INTO penstock.child (queue, parent, child_queue, child, i)
SELECT $1, item.parent, item.child_queue, item.child, item.i + coalesce(
    (SELECT max(child.i) FROM penstock.child WHERE child.queue = $1 AND child.parent = item.parent), 0
)
FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS item (parent, child_queue, child, i)
ORDER BY item.i
ON CONFLICT DO NOTHING
