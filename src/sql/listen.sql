-- listen: receive the notifications of this schema's writers from now on; look only after it.
-- Rows: none.  Locks: none.  Index: none.
LISTEN {channel}
