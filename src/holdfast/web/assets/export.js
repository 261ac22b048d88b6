import{$ as e,$r as t,A as n,M as r,R as i,Un as a,Vr as o,ir as s,j as c,rr as l}from"./start.js";async function u(e){try{await i(p(await o.session(e))),s(t().copied)}catch(e){l(e)}}async function d(e,t){try{let n=await(t===`json`?o.wholeSession(e):o.session(e)),r=(n.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;t===`json`?g(`${r}.json`,JSON.stringify(n,null,2),`application/json`):g(`${r}.md`,p(n),`text/markdown`)}catch(e){l(e)}}async function f(e){try{let t=[];for(let n of e)t.push(p(await o.session(n)));g(`chats.md`,t.join(`
---

`),`text/markdown`)}catch(e){l(e)}}function p(e){return`${[`# ${e.title||t().untitled}`,...e.system?[h(e.system)]:[],...c(e.messages).map(m)].join(`

`)}\n`}function m({message:i,earlier:o}){let s=i.role===`user`?t().you:r([...o,i]).join(`, `)||i.role,c=e(i.outcome,null),l=[...[...o,i].flatMap(({content:e})=>a(e)).map(()=>t().imageAlt),i.edited?t().editedByPerson:``,c?.label??``].filter(Boolean);return[`## ${s}`,n([...o,i]),...l.map(e=>`*${e}.*`)].join(`

`)}function h(e){return e.replace(/^/gm,`> `)}function g(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{p as asMarkdown,u as copyMarkdown,f as exportAll,d as exportAs};